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
    challenge,
    description_of,
    error_of,
    kind_of,
    same_issuer,
    usable_method,
)
from hubbubd.upstream.http.oauth.replies import NoReply, OAuthReply, demands, refusal, reply_to
from hubbubd.upstream.http.oauth.storage import OAuthStorage
from hubbubd.upstream.messages.exchange import CALL, OUTGOING
from hubbubd.upstream.ports import Inbound, SecretsVault
from hubbubd.upstream.protocol.schema_check import problems

PASSES: Final = 3
"""How often a request is sent at most: as it is, with a refreshed token, and with a new authorization."""

CALLBACK: Final = "/callback"

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
        lasts_s = bounds.seconds(token.expires_in)
        self.token_expiry_time = None if lasts_s is None else time() + lasts_s

    def should_include_resource_param(self, protocol_version: str | None = None) -> bool:
        """Return whether requests name the resource (RFC 8707), which Entra refuses of all but its own."""
        named = self.named_resource
        return super().should_include_resource_param(protocol_version) if named is True else named is not False

    def get_resource_url(self) -> str:
        """Return the resource that tokens are for."""
        return self.named_resource if isinstance(self.named_resource, str) else super().get_resource_url()


@dataclass(slots=True)
class _Asking:
    """A request that needs access: how to send others, the refusal it met, and the `token` it had."""

    request: HttpRequest
    hop: Hop
    challenge: httpx2.Response | None
    token: str | None
    last: bool


class OAuth:
    """Adds the token to the requests of one connection, and runs the OAuth flow when the server asks for it."""

    def __init__(
        self, config: ServerConfig, inbound: Inbound, vault: SecretsVault, deadlines: PausableDeadlines
    ) -> None:
        self._server = config
        self._inbound = inbound
        self._deadlines = deadlines
        self._url = ""
        self._redirect_uri = ""
        self._turn = anyio.Lock()
        self._failures = 0
        self._failure: UpstreamError | None = None
        self._memory = memory = OAuthStorage(config, vault)
        with warnings.catch_warnings():
            # Without an issuer the server chooses it. The SDK warns of that; for the operator the docs do.
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            self._provider = self._make_provider(memory)
        known = self._provider.context
        self._provider.context = _Context(**{field.name: getattr(known, field.name) for field in fields(known)})
        self._provider.context.named_resource = True if config.oauth is None else config.oauth.resource
        memory.restore(self._provider.context)
        self._choose_method()
        self._issuer = ""
        """The authorization server as its metadata spell it."""
        self._registered = self._widening = False
        """Whether the flow that runs has registered the client; whether it asks for more rights than the token has."""

    def _make_provider(self, memory: OAuthStorage) -> OAuthClientProvider:
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
                    self._server.url, memory, oauth.client_id, assertion, scope=oauth.scope, issuer=oauth.issuer
                )
            return ClientCredentialsOAuthProvider(
                self._server.url,
                memory,
                oauth.client_id,
                _plain(oauth.client_secret) or "",
                scope=oauth.scope,
                issuer=oauth.issuer,
            )
        self._redirect_uri = _redirect_uri(oauth, memory.kept)
        provider = OAuthClientProvider(
            self._server.url,
            OAuthClientMetadata(redirect_uris=[AnyUrl(self._redirect_uri)], client_name="Hubbub"),
            memory,
            redirect_handler=self._show,
            callback_handler=self._redirected,
            client_metadata_url=oauth.client_metadata_url,
        )
        if oauth.client_id is not None:
            provider.context.client_info = OAuthClientInformationFull(
                client_id=oauth.client_id,
                client_secret=_plain(oauth.client_secret),
                token_endpoint_auth_method="client_secret_basic" if oauth.client_secret else "none",
                redirect_uris=[AnyUrl(self._redirect_uri)],
                issuer=oauth.issuer,
            )
        return provider

    async def send(self, request: HttpRequest, hop: Hop, answer: HttpResponse | None) -> HttpResponse:
        """As `client.AccessLayer`. Raises UpstreamError (AUTHENTICATION_FAILED).

        `answer` is what the request got without a token, if it was sent before there was an `OAuth`.
        """
        if self._memory.unsaved and not self._turn.locked():
            async with self._turn:
                with suppress(VaultError):  # it is good, though it would not outlast this hub
                    await self._memory.keep()
        refused: httpx2.Response | None = None
        token: str | None = None  # the one that was sent last; another request may have renewed it since
        last = False
        for passes_left in range(PASSES - 1, -1, -1):
            if answer is None:
                needed = refused is not None or self._expired()
                if needed and self._turn.locked() and not self._waits(request):
                    last = True
                elif needed:
                    last = await self._gain(_Asking(request, hop, refused, token, last=last))
                if (token := self._token()) is not None:
                    request.headers["Authorization"] = f"Bearer {token}"
                answer = await hop(request)
            if last or not passes_left or request.method == "DELETE" or not demands(answer):
                return answer
            refused, answer = await refusal(answer), None
        raise AssertionError("unreachable")

    async def _gain(self, asking: "_Asking") -> bool:
        """Run the flow until there is another token; return whether the next pass is the last one."""
        failures = self._failures
        with self._inbound.held_up(CALL.get()):
            async with self._turn:
                if self._failure is not None and self._failures > failures:
                    raise self._failure  # single-flight: all who waited share the failure
                try:
                    await self._memory.follow()
                    if asking.challenge is not None and asking.challenge.status_code == 401:
                        self._expire(asking.token)
                    return await self._run_with_known_client(asking)
                except NoReply as exc:
                    raise UpstreamError(exc.fault) from None
                except VaultError as exc:
                    raise UpstreamError(faults.fault("AUTHENTICATION_FAILED", str(exc), retryable=True)) from None
                except Exception as exc:  # noqa: BLE001 - however a flow fails, there is no access
                    self._failures += 1
                    self._failure = _failed(exc, asking.challenge)
                    raise self._failure from None

    async def _run_with_known_client(self, asking: "_Asking") -> bool:
        """Run the flow; once more with a new client if the authorization server has forgotten the one it had.

        Servers forget clients that registered themselves: after a time, or with their database.
        """
        self._registered = False
        self._widening = asking.challenge is not None and asking.challenge.status_code == 403
        client = self._provider.context.client_info
        if client is not None and client.client_secret_expires_at and client.client_secret_expires_at <= time():
            await self._forget_client()
        try:
            return await self._run(asking)
        except _ClientForgotten:
            return await self._run(asking)

    async def _run(self, asking: "_Asking") -> bool:
        request = httpx2.Request(
            asking.request.method, str(asking.request.url), headers=[*asking.request.headers.items()]
        )
        last = asking.last
        async with aclosing(self._provider.async_auth_flow(request)) as flow:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request:
                    reply = await self._reply(outgoing, asking)
                elif last or asking.challenge is None or self._token() not in (None, asking.token):
                    return last
                else:
                    last = True
                    reply = challenge(asking.challenge, str(asking.request.url), self._scope)
                    if not self._asks(asking.request):
                        return last
                outgoing = await flow.asend(reply)

    async def _reply(self, outgoing: httpx2.Request, asking: "_Asking") -> httpx2.Response:
        """Send a request of the flow and return its reply, after what follows from it for the hub's client."""
        context, kind = self._provider.context, kind_of(outgoing)
        known = context.oauth_metadata
        expected = FlowKnowledge(
            issuer=context.auth_server_url,
            scoped=self._is_scoped(asking.challenge),
            methods=known.token_endpoint_auth_methods_supported if known is not None else None,
        )
        reply = await reply_to(outgoing, asking.hop, self._server.url or "", expected)
        if kind is OAuthRequestKind.METADATA:
            self._choose_method(reply)
            self._issuer = reply.issuer or self._issuer
        elif kind is OAuthRequestKind.REGISTRATION:
            self._check_registration(outgoing, reply)
            self._registered = True
        elif error_of(reply.document) in CLIENT_REFUSED and self._is_registered_client:
            refused = await self._refused(error_of(reply.document), description_of(reply.document))
            if b"grant_type=refresh_token" not in await outgoing.aread():  # after that the SDK goes on by itself
                raise refused
        return reply.response

    @property
    def _scope(self) -> str | None:
        return self._server.oauth.scope if self._server.oauth is not None else None

    def _is_scoped(self, refused: httpx2.Response | None) -> bool:
        """Return whether the configuration, the challenge or the resource says which scopes to ask for."""
        resource = self._provider.context.protected_resource_metadata
        named = resource is not None and resource.scopes_supported is not None
        return self._scope is not None or named or (refused is not None and _asks_for_scope(refused))

    def _choose_method(self, reply: OAuthReply | None = None) -> None:
        """Have a configured secret sent in a way that the authorization server takes."""
        oauth, context = self._server.oauth, self._provider.context
        known = context.oauth_metadata.token_endpoint_auth_methods_supported if context.oauth_metadata else None
        methods = reply.methods if reply is not None else known
        if oauth is not None and oauth.client_secret is not None and context.client_info is not None and methods:
            context.client_info.token_endpoint_auth_method = usable_method(methods)

    def _check_registration(self, outgoing: httpx2.Request, reply: OAuthReply) -> None:
        """Raise OAuthFlowError for a registration that was refused by a server that offers none."""
        metadata = self._provider.context.oauth_metadata
        if reply.response.is_success or (metadata is not None and metadata.registration_endpoint is not None):
            return
        where = urlsplit(str(metadata.issuer)).netloc if metadata is not None else outgoing.url.host
        raise OAuthFlowError(
            f"{where} lets no client register itself: register one there by hand, with the redirect URI "
            f"http://127.0.0.1:PORT{CALLBACK}, and set oauth.client_id and oauth.redirect_port"
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
            await self._memory.keep()

    async def _refused(self, code: str, why: str) -> Exception:
        """Forget a client that the authorization server refuses; return what ends this run of the flow.

        One that this flow has registered is not registered once more: a person would be asked again, for the same.
        """
        await self._forget_client()
        said = " ".join(filter(None, (code, why)))
        if self._registered:
            what = "the authorization server refuses the client that the hub has just registered there"
            return OAuthFlowError(f"{what}: {said}")
        return _ClientForgotten(f"the authorization server has forgotten the hub: {said}")

    def _token(self) -> str | None:
        tokens = self._provider.context.current_tokens
        return tokens.access_token if tokens is not None else None

    def _expired(self) -> bool:
        context = self._provider.context
        return context.can_refresh_token() and not context.is_token_valid()

    def _expire(self, token: str | None) -> None:
        """Expire a token that the server refused, whatever its lifetime, so that the flow refreshes it first."""
        context = self._provider.context
        if token is not None and token == self._token() and context.can_refresh_token():
            context.token_expiry_time = 1.0

    def _asks(self, request: HttpRequest) -> bool:
        """Return whether a caller waits for this request's result, so that a person may be asked."""
        exchange = OUTGOING.get()
        if exchange is None:
            return self._server.transport == "sse" and request.method == "GET"
        return exchange.awaits_result and exchange.patient

    def _waits(self, request: HttpRequest) -> bool:
        """Return whether the request may wait for a flow. Not answers and notifications: they hold up others."""
        return self._asks(request) or request.method == "GET"

    async def _show(self, url: str) -> None:
        self._url = url
        self._spell_issuer()

    def _spell_issuer(self) -> None:
        """Have the metadata name their issuer as the server spells it: a redirect's `iss` must be the same text.

        MCP 2026-07-28, basic/authorization, and RFC 9207, section 2.4: no normalisation there, not even of a slash.
        """
        context, spelt = self._provider.context, self._issuer
        if context.oauth_metadata is not None and spelt and same_issuer(str(context.oauth_metadata.issuer), spelt):
            members = context.oauth_metadata.model_dump(mode="json", exclude_none=True)
            context.oauth_metadata = OAuthMetadata.model_validate(members | {"issuer": spelt})

    async def _redirected(self) -> AuthorizationCodeResult:
        with self._deadlines.pause():
            try:
                url = await self._inbound.authorize(self._url, self._redirect_uri, CALL.get())
            except HubError:
                # A person whom the server shows an error for an unknown client comes to no end. The next attempt
                # registers a new one. Not where more rights were asked for: those that there are still serve others.
                if not (self._registered or self._widening):
                    await self._forget_client()
                raise
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        if query.get("error") in CLIENT_REFUSED and self._is_registered_client:
            raise await self._refused(query["error"], query.get("error_description", ""))
        if "error" in query:
            why = " ".join([query["error"], query.get("error_description", "")]).strip()[: faults.BODY_EXCERPT]
            hint = "; it does not take `resource`: set oauth.resource" if query["error"] == "invalid_target" else ""
            raise OAuthFlowError(f"the authorization server said no: {why}{hint}")
        return AuthorizationCodeResult(code=query.get("code", ""), state=query.get("state"), iss=query.get("iss"))


def _asks_for_scope(refused: httpx2.Response) -> bool:
    return extract_scope_from_www_auth(refused) is not None


def _redirect_uri(oauth: OAuthConfig, kept: dict[str, Any]) -> str:
    """Return the redirect URI; a registered client keeps the one it was registered with."""
    for known in kept.get("client", {}).get("redirect_uris") or ():
        return str(known)
    port = oauth.redirect_port
    if not port:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
    return f"http://127.0.0.1:{port}{CALLBACK}"


def _failed(exc: Exception, challenge: httpx2.Response | None) -> UpstreamError:
    """Return why there is no access. Replies may contain secrets, so little of them is repeated."""
    if isinstance(exc, HubError):
        why = exc.message
    elif isinstance(problem := exc.__cause__ or exc.__context__ or exc, ValidationError):
        why = f"the authorization server's reply does not fit: {problems(problem)}"
    elif isinstance(exc, (OAuthFlowError, _ClientForgotten)):
        text = str(exc)
        code = _ERROR_CODE.search(text)
        why = _BODY.split(text, 1)[0][: faults.BODY_EXCERPT] + (f" {code[1]}" if code else "")
    else:
        why = f"{type(exc).__name__}"
    if challenge is None:
        return faults.error("AUTHENTICATION_FAILED", why)
    fault = faults.fault_from_status(challenge.status_code, challenge.headers, challenge.content, session=False)
    return UpstreamError(replace(fault, message=f"{fault.message}: {why}"))


def _plain(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret is not None else None
