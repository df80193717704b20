"""OAuth access to servers (MCP authorization), single-flight per connection.

The SDK's providers implement the protocol. Used directly they would hold their lock for as long as a request takes, ask
a person for whichever request comes, and forget with the connection when a token expires and who issued it. So `OAuth`
drives their flow only when a server asks for it, one flow at a time and never around a request of the hub's own; other
requests wait and share its outcome. What a flow learns is kept in the vault.
"""

import logging
import re
import socket
import warnings
from contextlib import aclosing, suppress
from dataclasses import dataclass, fields, replace
from time import time
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import extract_scope_from_www_auth
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import AnyUrl, SecretStr, ValidationError

from hubbubd import bounds
from hubbubd.config import ServerConfig
from hubbubd.config.servers.server import OAuthConfig
from hubbubd.errors import HubError, UpstreamError, VaultError
from hubbubd.upstream import faults
from hubbubd.upstream.deadlines import PausableDeadlines
from hubbubd.upstream.http.client import Hop, HttpRequest, HttpResponse
from hubbubd.upstream.http.oauth.documents import (
    CLIENT_REFUSED,
    FlowKnowledge,
    OAuthRequestKind,
    classify_request,
    complete_challenge,
    is_same_issuer,
    read_error_code,
    read_error_description,
    select_auth_method,
)
from hubbubd.upstream.http.oauth.replies import (
    NoReply,
    OAuthReply,
    is_access_refusal,
    read_sdk_refusal,
    send_flow_request,
)
from hubbubd.upstream.http.oauth.storage import OAuthStorage
from hubbubd.upstream.messages.exchange import CALL, OUTGOING
from hubbubd.upstream.ports import Inbound, SecretsVault
from hubbubd.upstream.protocol.schema_check import describe_problems

MAX_PASSES: Final = 3
"""How often a request is sent at most: as it is, with a refreshed token, and with a new authorization."""

CALLBACK_PATH: Final = "/callback"

_ERROR_CODE: Final = re.compile(r'"error"\s*:\s*"([\w.-]{1,60})"')

_BODY: Final = re.compile(r":?\s*[{<]")
"""Where a reply begins in a message of the SDK: an object of JSON, or a page of HTML."""

# Failures are in the fault; the SDK would log them with whatever an authorization server has sent.
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)


class _ClientForgotten(Exception):
    """The authorization server does not know the client that the hub registered there, any more."""


class _Context(OAuthContext):
    """The SDK's context, with a bounded token lifetime and the resource that the configuration names."""

    named_resource: str | bool = True

    def update_token_expiry(self, token: OAuthToken) -> None:
        """Set the token's expiry, at most a century ahead: the SDK would compute with any number."""
        lasts_s = bounds.clamp_seconds(token.expires_in)
        self.token_expiry_time = None if lasts_s is None else time() + lasts_s

    def should_include_resource_param(self, protocol_version: str | None = None) -> bool:
        """Return whether requests name the resource (RFC 8707): Entra refuses all resources but its own."""
        resource = self.named_resource
        return super().should_include_resource_param(protocol_version) if resource is True else resource is not False

    def get_resource_url(self) -> str:
        """Return the resource that tokens are for."""
        return self.named_resource if isinstance(self.named_resource, str) else super().get_resource_url()


@dataclass(slots=True)
class _AccessRequest:
    """A request that needs access.

    `hop` sends the flow's requests, `challenge` is the refusal (None before one), `token` the refused token.
    `is_last` says that the request is sent once more at most.
    """

    request: HttpRequest
    hop: Hop
    challenge: httpx2.Response | None
    token: str | None
    is_last: bool


class OAuth:
    """Adds the token to the requests of one connection, and runs the OAuth flow when the server asks for it."""

    def __init__(
        self, config: ServerConfig, inbound: Inbound, vault: SecretsVault, deadlines: PausableDeadlines
    ) -> None:
        self._server = config
        self._inbound = inbound
        self._deadlines = deadlines
        self._authorization_url = ""
        self._redirect_uri = ""
        self._flow_lock = anyio.Lock()
        self._failures = 0  # how many flows have failed
        self._failure: UpstreamError | None = None  # of the last one
        self._storage = storage = OAuthStorage(config, vault)
        with warnings.catch_warnings():
            # Without an issuer the server chooses it. The SDK warns of that; for the operator the docs do.
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            self._provider = self._make_provider(storage)
        context = self._provider.context
        self._provider.context = _Context(**{field.name: getattr(context, field.name) for field in fields(context)})
        self._provider.context.named_resource = True if config.oauth is None else config.oauth.resource
        storage.restore(self._provider.context)
        self._choose_auth_method()
        self._issuer = ""
        """The authorization server as its metadata spell it."""
        self._has_registered = self._is_widening = False
        """Whether the flow that runs has registered the client; whether it asks for more rights than the token has."""

    def _make_provider(self, storage: OAuthStorage) -> OAuthClientProvider:
        """Return the SDK's provider for the configured grant: a person's log-in, or credentials of the client's own."""
        oauth = self._server.oauth or OAuthConfig()
        assert self._server.url is not None
        if oauth.grant == "client_credentials":
            assert oauth.client_id is not None
            if oauth.private_key is not None:
                signing = SignedJWTParameters(
                    issuer=oauth.client_id,
                    subject=oauth.client_id,
                    signing_key=oauth.private_key.get_secret_value(),
                    signing_algorithm=oauth.signing_algorithm,
                )
                assertion = signing.create_assertion_provider()
                return PrivateKeyJWTOAuthProvider(
                    self._server.url, storage, oauth.client_id, assertion, scope=oauth.scope, issuer=oauth.issuer
                )
            return ClientCredentialsOAuthProvider(
                self._server.url,
                storage,
                oauth.client_id,
                _reveal(oauth.client_secret) or "",
                scope=oauth.scope,
                issuer=oauth.issuer,
            )
        self._redirect_uri = _choose_redirect_uri(oauth, storage.restored)
        provider = OAuthClientProvider(
            self._server.url,
            OAuthClientMetadata(redirect_uris=[AnyUrl(self._redirect_uri)], client_name="Hubbub"),
            storage,
            redirect_handler=self._remember_authorization_url,
            callback_handler=self._wait_for_redirect,
            client_metadata_url=oauth.client_metadata_url,
        )
        if oauth.client_id is not None:
            provider.context.client_info = OAuthClientInformationFull(
                client_id=oauth.client_id,
                client_secret=_reveal(oauth.client_secret),
                token_endpoint_auth_method="client_secret_basic" if oauth.client_secret else "none",
                redirect_uris=[AnyUrl(self._redirect_uri)],
                issuer=oauth.issuer,
            )
        return provider

    async def send(self, request: HttpRequest, hop: Hop, response: HttpResponse | None) -> HttpResponse:
        """Send a request with a token, renewed where it is refused. Raises UpstreamError (AUTHENTICATION_FAILED).

        `response` is what the request got without a token, if it was sent before there was an `OAuth`.
        """
        if self._storage.has_unsaved_changes and not self._flow_lock.locked():
            async with self._flow_lock:
                with suppress(VaultError):  # the token is good, though it would not outlast this hub
                    await self._storage.save()
        refusal: httpx2.Response | None = None
        token: str | None = None  # the one that was sent last; another request may have renewed it since
        is_last = False
        for passes_left in range(MAX_PASSES - 1, -1, -1):
            if response is None:
                needs_token = refusal is not None or self._has_expired_token()
                if needs_token and self._flow_lock.locked() and not self._may_wait_for_flow(request):
                    is_last = True  # sent with the token that there is
                elif needs_token:
                    is_last = await self._obtain_token(_AccessRequest(request, hop, refusal, token, is_last=is_last))
                if (token := self._current_token()) is not None:
                    request.headers["Authorization"] = f"Bearer {token}"
                response = await hop(request)
            if is_last or not passes_left or request.method == "DELETE" or not is_access_refusal(response):
                return response
            refusal, response = await read_sdk_refusal(response), None
        raise AssertionError("unreachable")

    async def _obtain_token(self, access_request: _AccessRequest) -> bool:
        """Run the flow for another token; return whether the next pass is the last one. Raises UpstreamError."""
        failures = self._failures
        with self._inbound.pause_clock(CALL.get()):
            async with self._flow_lock:
                if self._failure is not None and self._failures > failures:
                    raise self._failure  # single-flight: all who waited share the failure
                try:
                    await self._storage.adopt_changes()
                    if access_request.challenge is not None and access_request.challenge.status_code == 401:
                        self._expire_token(access_request.token)
                    return await self._run_with_known_client(access_request)
                except NoReply as exc:
                    raise UpstreamError(exc.fault) from None
                except VaultError as exc:
                    raise UpstreamError(faults.fault("AUTHENTICATION_FAILED", str(exc), retryable=True)) from None
                except Exception as exc:  # noqa: BLE001 - however a flow fails, there is no access
                    self._failures += 1
                    self._failure = _access_error(exc, access_request.challenge)
                    raise self._failure from None

    async def _run_with_known_client(self, access_request: _AccessRequest) -> bool:
        """Run the flow; once more with a new client if the authorization server has forgotten the hub's client.

        Servers forget clients that registered themselves: after a time, or with their database.
        """
        self._has_registered = False
        self._is_widening = access_request.challenge is not None and access_request.challenge.status_code == 403
        client = self._provider.context.client_info
        if client is not None and client.client_secret_expires_at and client.client_secret_expires_at <= time():
            await self._forget_client()
        try:
            return await self._run_flow(access_request)
        except _ClientForgotten:
            return await self._run_flow(access_request)

    async def _run_flow(self, access_request: _AccessRequest) -> bool:
        """Drive the SDK's flow; return whether the next pass of the request is the last one.

        The flow yields requests of its own, and at last the request itself, which is not sent: its refusal is known.
        """
        hub_request, challenge = access_request.request, access_request.challenge
        request = httpx2.Request(hub_request.method, str(hub_request.url), headers=[*hub_request.headers.items()])
        is_last = access_request.is_last
        async with aclosing(self._provider.async_auth_flow(request)) as flow:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request:
                    reply = await self._send_flow_request(outgoing, access_request)
                elif is_last or challenge is None or self._current_token() not in (None, access_request.token):
                    return is_last
                else:
                    is_last = True
                    reply = complete_challenge(challenge, str(hub_request.url), self._configured_scope)
                    if not self._may_ask_person(hub_request):
                        return is_last
                outgoing = await flow.asend(reply)

    async def _send_flow_request(self, outgoing: httpx2.Request, access_request: _AccessRequest) -> httpx2.Response:
        """Send a request of the flow; apply what the reply says about the hub's client, and return the reply."""
        context, kind = self._provider.context, classify_request(outgoing)
        metadata = context.oauth_metadata
        knowledge = FlowKnowledge(
            issuer=context.auth_server_url,
            is_scope_known=self._is_scope_known(access_request.challenge),
            methods=metadata.token_endpoint_auth_methods_supported if metadata is not None else None,
        )
        reply = await send_flow_request(outgoing, access_request.hop, self._server.url or "", knowledge)
        if kind is OAuthRequestKind.METADATA:
            self._choose_auth_method(reply)
            self._issuer = reply.issuer or self._issuer
        elif kind is OAuthRequestKind.REGISTRATION:
            self._check_registration(outgoing, reply)
            self._has_registered = True
        elif read_error_code(reply.document) in CLIENT_REFUSED and self._is_registered_client:
            refused = await self._handle_refused_client(
                read_error_code(reply.document), read_error_description(reply.document)
            )
            if b"grant_type=refresh_token" not in await outgoing.aread():  # after that the SDK goes on by itself
                raise refused
        return reply.response

    @property
    def _configured_scope(self) -> str | None:
        return self._server.oauth.scope if self._server.oauth is not None else None

    def _is_scope_known(self, refused: httpx2.Response | None) -> bool:
        """Return whether the configuration, the challenge or the resource says which scopes to ask for."""
        resource = self._provider.context.protected_resource_metadata
        has_resource_scopes = resource is not None and resource.scopes_supported is not None
        if self._configured_scope is not None or has_resource_scopes:
            return True
        return refused is not None and extract_scope_from_www_auth(refused) is not None

    def _choose_auth_method(self, reply: OAuthReply | None = None) -> None:
        """Choose how a configured secret is sent: in a way that the authorization server takes."""
        oauth, context = self._server.oauth, self._provider.context
        listed = context.oauth_metadata.token_endpoint_auth_methods_supported if context.oauth_metadata else None
        methods = reply.methods if reply is not None else listed
        if oauth is not None and oauth.client_secret is not None and context.client_info is not None and methods:
            context.client_info.token_endpoint_auth_method = select_auth_method(methods)

    def _check_registration(self, outgoing: httpx2.Request, reply: OAuthReply) -> None:
        """Raise OAuthFlowError if a registration was refused by a server that does not offer to register clients."""
        metadata = self._provider.context.oauth_metadata
        if reply.response.is_success or (metadata is not None and metadata.registration_endpoint is not None):
            return
        host = urlsplit(str(metadata.issuer)).netloc if metadata is not None else outgoing.url.host
        raise OAuthFlowError(
            f"{host} lets no client register itself: register one there by hand, with the redirect URI "
            f"http://127.0.0.1:PORT{CALLBACK_PATH}, and set oauth.client_id and oauth.redirect_port"
        )

    @property
    def _is_registered_client(self) -> bool:
        """Whether the client is one that the hub registered by itself (RFC 7591), and can register again."""
        oauth, client = self._server.oauth or OAuthConfig(), self._provider.context.client_info
        return client is not None and oauth.client_id is None and client.client_id != oauth.client_metadata_url

    async def _forget_client(self) -> None:
        """Forget a client that the hub registered by itself, with its tokens. Raises VaultError."""
        if self._is_registered_client:
            self._provider.context.client_info = None
            self._provider.context.clear_tokens()
            await self._storage.save()

    async def _handle_refused_client(self, code: str, why: str) -> Exception:
        """Forget a client that the authorization server refuses; return the exception to end this run of the flow with.

        A client that this flow has registered is not registered once more: a person would be asked again, for the same.
        """
        await self._forget_client()
        details = " ".join(filter(None, (code, why)))
        if self._has_registered:
            what = "the authorization server refuses the client that the hub has just registered there"
            return OAuthFlowError(f"{what}: {details}")
        return _ClientForgotten(f"the authorization server has forgotten the hub: {details}")

    def _current_token(self) -> str | None:
        """Return the access token, which may have expired; None if there is none."""
        tokens = self._provider.context.current_tokens
        return tokens.access_token if tokens is not None else None

    def _has_expired_token(self) -> bool:
        """Return whether there is a token that has expired and can be refreshed."""
        context = self._provider.context
        return context.can_refresh_token() and not context.is_token_valid()

    def _expire_token(self, token: str | None) -> None:
        """Expire a token that the server refused, whatever its lifetime, so that the flow refreshes it first."""
        context = self._provider.context
        if token is not None and token == self._current_token() and context.can_refresh_token():
            context.token_expiry_time = 1.0  # long ago: a second after 1970 began

    def _may_ask_person(self, request: HttpRequest) -> bool:
        """Return whether a person may be asked to authorize: a caller waits for the result of the request."""
        exchange = OUTGOING.get()
        if exchange is None:  # the request that opens HTTP with SSE is a part of connecting
            return self._server.transport == "sse" and request.method == "GET"
        return exchange.awaits_result and exchange.may_authorize

    def _may_wait_for_flow(self, request: HttpRequest) -> bool:
        """Return whether the request may wait for a flow. Answers and notifications may not: others wait for them."""
        return self._may_ask_person(request) or request.method == "GET"

    async def _remember_authorization_url(self, url: str) -> None:
        """Note the URL for a person to visit, and use the issuer as the server spells it; called by the SDK."""
        self._authorization_url = url
        self._use_spelled_issuer()  # the SDK calls `_wait_for_redirect` next, and then compares the issuers

    def _use_spelled_issuer(self) -> None:
        """Put the issuer into the metadata as the server spells it: a redirect's `iss` must be the same text.

        MCP 2026-07-28, basic/authorization, and RFC 9207, section 2.4: no normalisation there, not even of a slash.
        """
        context = self._provider.context
        metadata = context.oauth_metadata
        if metadata is not None and self._issuer and is_same_issuer(str(metadata.issuer), self._issuer):
            members = metadata.model_dump(mode="json", exclude_none=True)
            context.oauth_metadata = OAuthMetadata.model_validate(members | {"issuer": self._issuer})

    async def _wait_for_redirect(self) -> AuthorizationCodeResult:
        """Wait for a person to authorize the hub; return the code of the redirect. Raises OAuthFlowError, HubError."""
        with self._deadlines.pause():
            try:
                url = await self._inbound.authorize(self._authorization_url, self._redirect_uri, CALL.get())
            except HubError:
                # A server that does not know the client may show an error, and never redirect: so the next attempt
                # registers a new one. Not if more rights were asked for: the client's token still serves others.
                if not (self._has_registered or self._is_widening):
                    await self._forget_client()
                raise
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        if query.get("error") in CLIENT_REFUSED and self._is_registered_client:
            raise await self._handle_refused_client(query["error"], query.get("error_description", ""))
        if "error" in query:
            why = " ".join([query["error"], query.get("error_description", "")]).strip()[: faults.BODY_EXCERPT]
            hint = "; it does not take `resource`: set oauth.resource" if query["error"] == "invalid_target" else ""
            raise OAuthFlowError(f"the authorization server said no: {why}{hint}")
        return AuthorizationCodeResult(code=query.get("code", ""), state=query.get("state"), iss=query.get("iss"))


def _choose_redirect_uri(oauth: OAuthConfig, restored: dict[str, Any]) -> str:
    """Return the redirect URI: that with which a stored client was registered, else one on the configured port."""
    for registered_uri in restored.get("client", {}).get("redirect_uris") or ():
        return str(registered_uri)
    port = oauth.redirect_port
    if not port:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
    return f"http://127.0.0.1:{port}{CALLBACK_PATH}"


def _access_error(exc: Exception, challenge: httpx2.Response | None) -> UpstreamError:
    """Return the error that says why there is no access. Replies may contain secrets, so little of them is repeated."""
    if isinstance(exc, HubError):
        why = exc.message
    elif isinstance(problem := exc.__cause__ or exc.__context__ or exc, ValidationError):
        why = f"the authorization server's reply does not fit: {describe_problems(problem)}"
    elif isinstance(exc, (OAuthFlowError, _ClientForgotten)):
        text = str(exc)
        code = _ERROR_CODE.search(text)
        why = _BODY.split(text, 1)[0][: faults.BODY_EXCERPT] + (f" {code[1]}" if code else "")
    else:
        why = f"{type(exc).__name__}"
    if challenge is None:
        return faults.error("AUTHENTICATION_FAILED", why)
    fault = faults.fault_from_status(challenge.status_code, challenge.headers, challenge.content, in_session=False)
    return UpstreamError(replace(fault, message=f"{fault.message}: {why}"))


def _reveal(secret: SecretStr | None) -> str | None:
    """Return the text of a secret; None without one."""
    return secret.get_secret_value() if secret is not None else None
