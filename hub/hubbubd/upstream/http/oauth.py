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
from typing import Any, Final, TypeVar
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
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import AnyUrl, BaseModel, SecretStr, ValidationError

from hubbubd import bounds
from hubbubd.config import ServerConfig
from hubbubd.config.server import OAuthConfig
from hubbubd.errors import HubError, Overtaken, UpstreamError, VaultError
from hubbubd.redaction import REDACTION
from hubbubd.upstream import faults
from hubbubd.upstream.checking import problems
from hubbubd.upstream.deadlines import Patience
from hubbubd.upstream.exchange import CALL, EXCHANGE
from hubbubd.upstream.http.client import Answer, Hop, Request
from hubbubd.upstream.http.oauth_replies import NoReply, demands, refusal, reply_to
from hubbubd.upstream.ports import Inbound, Vault, oauth_of

PASSES: Final = 3
"""How often a request is sent at most: as it is, with a refreshed token, and with a new authorization."""

CALLBACK: Final = "/callback"

_ERROR_CODE: Final = re.compile(r'"error"\s*:\s*"([\w.-]{1,60})"')

# Failures are in the fault; the SDK would log them with whatever an authorization server has sent.
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)


class _Context(OAuthContext):
    """The SDK's context with a bounded token lifetime: the SDK would compute with any number."""

    def update_token_expiry(self, token: OAuthToken) -> None:
        """Set the token's expiry, at most a century ahead."""
        lasts_s = bounds.seconds(token.expires_in)
        self.token_expiry_time = None if lasts_s is None else time() + lasts_s


class Memory:
    """A server's authorization, between the SDK's context and the vault.

    Implements the SDK's TokenStorage: whenever a part is to be stored, it stores the whole context.
    """

    def __init__(self, config: ServerConfig, vault: Vault) -> None:
        oauth = config.oauth or OAuthConfig()
        self._server = config.name
        self._vault = vault
        self._about = {
            "url": config.url,
            **oauth.model_dump(include={"grant", "client_id", "client_metadata_url", "issuer", "redirect_port"}),
        }
        self.context: OAuthContext | None = None
        self.unsaved = False
        """Whether the context has what the vault could not take."""
        self._read()

    def _read(self) -> None:
        self._known = self._vault.get(self._server)
        same = self._known is not None and self._known.get("about") == self._about
        self.kept: dict[str, Any] = self._known if self._known and same else {}

    def restore(self, context: OAuthContext) -> None:
        """Fill a new context with what was kept for this server, if its configuration is the same."""
        self.context = context
        kept = _parsed(OAuthClientInformationFull, self.kept.get("client"))
        if kept is not None and context.client_info is None:
            context.client_info = kept
        elif kept is not None and context.client_info is not None:
            context.client_info.issuer = context.client_info.issuer or kept.issuer
        context.current_tokens = _parsed(OAuthToken, self.kept.get("tokens"))
        self._learn(context)
        context.token_expiry_time = bounds.moment(self.kept.get("expires_at"))
        context.oauth_metadata = _parsed(OAuthMetadata, self.kept.get("authorization_server"))
        context.protected_resource_metadata = _parsed(ProtectedResourceMetadata, self.kept.get("resource"))
        if context.protected_resource_metadata is not None:
            context.auth_server_url = str(context.protected_resource_metadata.authorization_servers[0])

    async def follow(self) -> None:
        """Take over what another member of the fleet has kept since: a token that renews is good for once.

        Raises VaultError; then nothing may be renewed, as it could not be kept.
        """
        if self.unsaved:
            await self.keep()
        await self._vault.refresh(self._server)
        now = self._vault.get(self._server)
        if now is None or now == self._known:
            return
        self._read()
        if self.context is not None:
            if self._about["client_id"] is None:  # else it is that of the configuration
                self.context.client_info = None
            self.restore(self.context)

    async def get_tokens(self) -> OAuthToken | None:
        """As the SDK's TokenStorage."""
        return self.context.current_tokens if self.context is not None else None

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """As the SDK's TokenStorage."""
        return self.context.client_info if self.context is not None else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """As the SDK's TokenStorage."""
        await self.keep()

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """As the SDK's TokenStorage."""
        await self.keep()

    def _learn(self, context: OAuthContext) -> None:
        client, tokens = context.client_info, context.current_tokens
        secrets = [client.client_secret] if client is not None else []
        secrets += [tokens.access_token, tokens.refresh_token] if tokens is not None else []
        REDACTION.learn(oauth_of(self._server), filter(None, secrets), whole=True)

    async def keep(self) -> None:
        """Store the whole context. Raises OSError."""
        context = self.context
        assert context is not None, "restored"
        self._learn(context)
        client, metadata = context.client_info, context.oauth_metadata
        if client is not None and client.issuer is None and metadata is not None:
            # Bind a client registered by the operator to the authorization server that accepted it.
            client.issuer = str(metadata.issuer)
        parts = {
            "client": client,
            "tokens": context.current_tokens,
            "authorization_server": metadata,
            "resource": context.protected_resource_metadata,
        }
        secrets: dict[str, Any] = {
            name: part.model_dump(mode="json", exclude_none=True) for name, part in parts.items() if part is not None
        }
        if "client" in secrets and self._about["client_id"]:
            secrets["client"].pop("client_secret", None)  # the configuration has it
        secrets |= {"about": self._about, "issuer": client.issuer if client else None}
        secrets["expires_at"] = context.token_expiry_time
        try:
            await self._vault.put(self._server, secrets)
        except VaultError as exc:
            self.unsaved = not isinstance(exc, Overtaken)  # what another member has kept is newer
            raise
        self.unsaved, self._known = False, secrets


@dataclass(slots=True)
class _Asking:
    """A request that needs access: how to send others, the refusal it met, and the `token` it had."""

    request: Request
    hop: Hop
    challenge: httpx2.Response | None
    token: str | None
    last: bool


class OAuth:
    """Adds the token to the requests of one connection, and runs the OAuth flow when the server asks for it."""

    def __init__(self, config: ServerConfig, inbound: Inbound, vault: Vault, patience: Patience) -> None:
        self._server = config
        self._inbound = inbound
        self._patience = patience
        self._url = ""
        self._redirect_uri = ""
        self._turn = anyio.Lock()
        self._failures = 0
        self._failure: UpstreamError | None = None
        self._memory = memory = Memory(config, vault)
        with warnings.catch_warnings():
            # Without an issuer the server chooses it. The SDK warns of that; for the operator the docs do.
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            self._provider = self._make_provider(memory)
        known = self._provider.context
        self._provider.context = _Context(**{field.name: getattr(known, field.name) for field in fields(known)})
        memory.restore(self._provider.context)

    def _make_provider(self, memory: Memory) -> OAuthClientProvider:
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
                    self._server.url, memory, oauth.client_id, assertion, issuer=oauth.issuer
                )
            return ClientCredentialsOAuthProvider(
                self._server.url, memory, oauth.client_id, _plain(oauth.client_secret) or "", issuer=oauth.issuer
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

    async def send(self, request: Request, hop: Hop, answer: Answer | None) -> Answer:
        """As `http_client.Entry`. Raises UpstreamError (AUTHENTICATION_FAILED).

        `answer` is what the request got without a token, if it was sent before there was an `OAuth`.
        """
        if self._memory.unsaved and not self._turn.locked():
            async with self._turn:
                with suppress(VaultError):  # it is good, though it would not outlast this hub
                    await self._memory.keep()
        challenge: httpx2.Response | None = None
        token: str | None = None  # the one that was sent last; another request may have renewed it since
        last = False
        for passes_left in range(PASSES - 1, -1, -1):
            if answer is None:
                needed = challenge is not None or self._expired()
                if needed and self._turn.locked() and not self._waits(request):
                    last = True
                elif needed:
                    last = await self._gain(_Asking(request, hop, challenge, token, last=last))
                if (token := self._token()) is not None:
                    request.headers["Authorization"] = f"Bearer {token}"
                answer = await hop(request)
            if last or not passes_left or request.method == "DELETE" or not demands(answer):
                return answer
            challenge, answer = await refusal(answer), None
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
                    return await self._run(asking)
                except NoReply as exc:
                    raise UpstreamError(exc.fault) from None
                except VaultError as exc:
                    raise UpstreamError(faults.fault("AUTHENTICATION_FAILED", str(exc), retryable=True)) from None
                except Exception as exc:  # noqa: BLE001 - however a flow fails, there is no access
                    self._failures += 1
                    self._failure = _failed(exc, asking.challenge)
                    raise self._failure from None

    async def _run(self, asking: "_Asking") -> bool:
        request = httpx2.Request(
            asking.request.method, str(asking.request.url), headers=[*asking.request.headers.items()]
        )
        last = asking.last
        async with aclosing(self._provider.async_auth_flow(request)) as flow:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request:
                    reply = await reply_to(outgoing, asking.hop, self._server.url or "")
                elif last or asking.challenge is None or self._token() not in (None, asking.token):
                    return last
                else:
                    last, reply = True, asking.challenge
                    if not self._asks(asking.request):
                        return last
                outgoing = await flow.asend(reply)

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

    def _asks(self, request: Request) -> bool:
        """Return whether a caller waits for this request's result, so that a person may be asked."""
        exchange = EXCHANGE.get()
        if exchange is None:
            return self._server.transport == "sse" and request.method == "GET"
        return exchange.awaits_result and exchange.patient

    def _waits(self, request: Request) -> bool:
        """Return whether the request may wait for a flow. Not answers and notifications: they hold up others."""
        return self._asks(request) or request.method == "GET"

    async def _show(self, url: str) -> None:
        self._url = url
        context, oauth = self._provider.context, self._server.oauth
        client, metadata = context.client_info, context.oauth_metadata
        if oauth is not None and oauth.client_secret is not None and client is not None and metadata is not None:
            methods = metadata.token_endpoint_auth_methods_supported or ["client_secret_basic"]
            if "client_secret_basic" not in methods and "client_secret_post" in methods:
                client.token_endpoint_auth_method = "client_secret_post"  # noqa: S105 - the name of a method

    async def _redirected(self) -> AuthorizationCodeResult:
        with self._patience.asking():
            url = await self._inbound.authorize(self._url, self._redirect_uri, CALL.get())
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        if "error" in query:
            why = " ".join([query["error"], query.get("error_description", "")]).strip()
            raise OAuthFlowError(f"the authorization server said no: {why[: faults.BODY_EXCERPT]}")
        return AuthorizationCodeResult(code=query.get("code", ""), state=query.get("state"), iss=query.get("iss"))


Model = TypeVar("Model", bound=BaseModel)


def _parsed(model: type[Model], kept: object) -> Model | None:
    """Return what was kept, or None if this version of the SDK cannot read it."""
    try:
        return model.model_validate(kept)
    except ValidationError:
        return None


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
    elif isinstance(exc, OAuthFlowError):
        text = str(exc)
        code = _ERROR_CODE.search(text)
        why = text.partition(": {")[0][: faults.BODY_EXCERPT] + (f" {code[1]}" if code else "")
    else:
        why = f"{type(exc).__name__}"
    if challenge is None:
        return faults.error("AUTHENTICATION_FAILED", why)
    fault = faults.of_status(challenge.status_code, challenge.headers, challenge.content, session=False)
    return UpstreamError(replace(fault, message=f"{fault.message}: {why}"))


def _plain(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret is not None else None
