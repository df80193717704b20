"""The addresses of the log-in, on the endpoint's port: which function serves each, and refusals in OAuth's format.

/.well-known/oauth-authorization-server   the metadata
/oauth/register                           a program says what it is
/oauth/authorize, /oauth/enter            a person's browser
/oauth/token                              a code or a refresh token for tokens
/oauth/revoke                             ends a log-in
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_plus

from hubbubd import payload
from hubbubd.config.policy.hosts import HostRules
from hubbubd.core.access import Principal
from hubbubd.core.logins import authorizations
from hubbubd.core.logins.authorizations import SCOPE
from hubbubd.core.logins.refusals import LoginRefusal, invalid_request
from hubbubd.errors import ResourceExhausted, Unavailable
from hubbubd.rpc.auth.gate import Gate
from hubbubd.rpc.interceptors import Oversight
from hubbubd.rpc.login import metadata, pages, person
from hubbubd.rpc.login.consents import LoginConsents
from hubbubd.rpc.login.documents import ClientDocuments, Get
from hubbubd.rpc.login.person import LoginPersons
from hubbubd.rpc.login.programs import Programs
from hubbubd.rpc.mcp.transport import HostHttpRequest, HttpRefusal
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.oversight import IssuedTokens, Rate

MAX_BODY: Final = 16 * 1024
"""Bytes of a registration, and of a request for tokens."""

MAX_FIELDS: Final = 50

REGISTRATIONS_PER_S: Final = 20.0
"""Registrations per second from one address; ten times as many at once."""

EXCHANGE: Final = "ExchangeLogin"
REFRESH: Final = "RefreshLogin"
REVOKE: Final = "RevokeLogin"
"""The names of the actions in the audit log."""

Headers = tuple[tuple[bytes, bytes], ...]

_NO_STORE: Final[Headers] = ((b"cache-control", b"no-store"), (b"pragma", b"no-cache"))
_UNKNOWN_PROGRAM: Final = Principal(name="", grants=(), credential="")


class LoginRoutes:
    """Serves the addresses of the log-in."""

    def __init__(self, hub: Hub, *, gate: Gate, oversight: Oversight, secure: bool, get: Get | None = None) -> None:
        """`secure` says that browsers speak TLS, to the hub or to a proxy; `get` is for `ClientDocuments`."""
        self._hub = hub
        self._oversight = oversight
        self._documents = ClientDocuments(self._host_rules, hub.clock.steady, get)
        self._programs = Programs(hub.logins.statement_key, self._fetch_document)
        self._persons = LoginPersons(hub, secure=secure)
        self._consents = LoginConsents(hub, gate, oversight, self._programs, self._persons)
        self._register_rate = Rate("registrations", REGISTRATIONS_PER_S, hub.clock.steady, reason="TOO_MANY_ATTEMPTS")

    async def serve(self, request: HostHttpRequest, base: str) -> None:
        """Serve a request at an address of the log-in; `base` is the hub's own address, without a path."""
        is_page = request.scope["path"] in metadata.PAGES
        if is_page and not self._hub.configuration.settings.has_login:
            await person.show_problem(request, pages.LOGIN_OFF, 404)
            return
        try:
            await self._serve(request, base)
        except LoginRefusal as exc:
            headers: Headers = _NO_STORE
            if exc.status == 401 and "authorization" in request.headers:  # RFC 6749, section 5.2
                headers += ((b"www-authenticate", b'Basic realm="hubbub"'),)
            await _send_error(request, exc.status, exc.error, exc.description, headers)
        except HttpRefusal as exc:
            await _send_error(request, exc.status, "invalid_request", exc.refusal.message, tuple(exc.headers))
        except ResourceExhausted as exc:
            if is_page:
                await person.show_problem(request, pages.too_often_view(exc.message), 429)
                return
            wait_s = max(1, round(exc.retry_after_s or 1))
            await _send_error(request, 429, "temporarily_unavailable", exc.message, ((b"retry-after", b"%d" % wait_s),))
        except Unavailable as exc:
            if is_page:
                await person.show_problem(request, pages.BUSY, 503)
                return
            await _send_error(request, 503, "temporarily_unavailable", exc.message)

    async def _serve(self, request: HostHttpRequest, base: str) -> None:
        """Serve a request by its path and method. Raises LoginRefusal, HttpRefusal, ResourceExhausted, Unavailable."""
        path, method = request.scope["path"], request.scope["method"]
        match path, method:
            case metadata.AUTHORIZE, "GET":
                await self._consents.serve_question(request, base)
            case metadata.AUTHORIZE, "POST":
                await self._consents.serve_decision(request, base)
            case metadata.ENTER, _:
                await self._persons.serve(request, base)
            case metadata.TOKEN, "POST":
                await self._serve_tokens(request, base)
            case metadata.REGISTER, "POST":
                await self._register(request)
            case metadata.REVOKE, "POST":
                await self._revoke(request)
            case _, "GET" if metadata.is_server_metadata_path(path):
                has_documents = self._hub.configuration.settings.mcp_login_documents
                await request.answer(200, metadata.server_metadata(base, has_documents=has_documents))
            case metadata.AUTHORIZE | metadata.TOKEN | metadata.REGISTER | metadata.REVOKE, _:
                raise LoginRefusal("invalid_request", f"{method} is not served here", status=405)
            case _:
                raise LoginRefusal("invalid_request", "there is nothing here", status=404)

    async def _fetch_document(self, url: str) -> object:
        """Return the document of a program. Raises LoginRefusal, also where the hub reads no documents."""
        if not self._hub.configuration.settings.mcp_login_documents:
            raise LoginRefusal(
                "invalid_client",
                "this hub reads no documents of programs (mcp_login_documents is false): log in once more, so that the "
                "program registers; if it remembers this one, take the hub out of it and add it again",
            )
        return await self._documents.fetch(url)

    async def _register(self, request: HostHttpRequest) -> None:
        """Serve the registration of a program. Raises LoginRefusal, HttpRefusal, ResourceExhausted, Unavailable."""
        self._register_rate.charge(self._oversight.peer_host())
        if _content_type(request) != "application/json":
            raise LoginRefusal("invalid_client_metadata", "Content-Type must be application/json", status=415)
        try:
            members: object = payload.loads(await request.read_body(MAX_BODY))
        except ValueError:
            raise LoginRefusal("invalid_client_metadata", "the body is not JSON") from None
        registered = await self._programs.register(members, self._hub.clock.now())
        await request.answer(201, payload.dumps(registered), _NO_STORE)

    async def _serve_tokens(self, request: HostHttpRequest, base: str) -> None:
        """Serve tokens for a code or a refresh token.

        Raises LoginRefusal, HttpRefusal, ResourceExhausted, Unavailable.
        """
        form = await _read_form(request)
        client_id = await self._authenticate_program(request, form)
        endpoint = authorizations.parse_resource(form["resource"], base).path if "resource" in form else None
        match form.get("grant_type"):
            case "authorization_code":
                tokens = await self._exchange(form, client_id, endpoint)
            case "refresh_token":
                tokens = await self._refresh(form, client_id, endpoint)
            case None:
                raise invalid_request("grant_type is missing")
            case _:
                raise LoginRefusal("unsupported_grant_type", "grant_type must be authorization_code or refresh_token")
        response = {
            "access_token": tokens.access,
            "token_type": "Bearer",
            "expires_in": tokens.expires_in_s,
            "refresh_token": tokens.refresh,
            "scope": SCOPE,
        }
        await request.answer(200, payload.dumps(response), _NO_STORE)

    async def _exchange(self, form: Mapping[str, str], client_id: str, endpoint: str | None) -> IssuedTokens:
        """Return the tokens for a code. Raises LoginRefusal."""
        code, verifier = _require_field(form, "code"), _require_field(form, "code_verifier")
        record = await self._audit_if_refused(EXCHANGE, self._hub.logins.find_code(code))
        if endpoint not in (None, record.endpoint):
            raise LoginRefusal("invalid_target", f"this code was given for {record.endpoint}")
        granter = Principal(name=record.granted_by, grants=(), credential=record.granted_with)
        with self._hub.audit.record_change(self._oversight.describe_attempt(EXCHANGE, granter, record.client_name)):
            return await self._charge_if_refused(
                self._hub.logins.exchange(code, client_id, form.get("redirect_uri"), verifier)
            )

    async def _refresh(self, form: Mapping[str, str], client_id: str, endpoint: str | None) -> IssuedTokens:
        """Return the tokens for a refresh token. Raises LoginRefusal."""
        refresh_token = _require_field(form, "refresh_token")
        return await self._audit_if_refused(REFRESH, self._hub.logins.refresh(refresh_token, client_id, endpoint))

    async def _revoke(self, request: HostHttpRequest) -> None:
        """End the log-in of a token, with an audit entry; the answer is the same for an unknown token.

        Raises LoginRefusal, HttpRefusal, ResourceExhausted, Unavailable.
        """
        form = await _read_form(request)
        client_id = await self._authenticate_program(request, form)
        login = await self._hub.logins.revoke(_require_field(form, "token"), client_id)
        if login is None:  # charged, as to look up an unknown token may cost a query of the store
            self._oversight.quotas.attempts.charge(self._oversight.peer_host())
        else:
            login_principal = Principal(name=login.name, grants=(), credential=login.credential)
            self._hub.audit.record_start(self._oversight.describe_attempt(REVOKE, login_principal, login.name))
        await request.answer(200, headers=_NO_STORE)

    async def _authenticate_program(self, request: HostHttpRequest, form: Mapping[str, str]) -> str:
        """Check the secret of the program that sends a form, and return the program's id. Raises LoginRefusal."""
        header = request.headers.get("authorization")
        if header is None:
            client_id, secret = _require_field(form, "client_id"), form.get("client_secret")
        else:
            client_id, secret = _read_basic(header)
            if "client_secret" in form:
                raise invalid_request("the program shows its secret twice")
            if form.get("client_id", client_id) != client_id:
                raise invalid_request("client_id differs from that of the header Authorization")
        await self._audit_if_refused("AuthenticateProgram", self._programs.authenticate(client_id, secret))
        return client_id

    async def _audit_if_refused(self, action: str, check: Any) -> Any:
        """Return the result of `check`, an awaitable; record a refusal in the audit log, and charge it to the address.

        Raises LoginRefusal, or ResourceExhausted after too many refusals.
        """
        try:
            return await self._charge_if_refused(check)
        except LoginRefusal as exc:
            self._hub.audit.record_refusal(self._oversight.describe_attempt(action, _UNKNOWN_PROGRAM, ""), exc.reason)
            raise

    async def _charge_if_refused(self, check: Any) -> Any:
        """Return the result of `check`, an awaitable; charge a refusal to the caller's address.

        Raises LoginRefusal, or ResourceExhausted after too many refusals.
        """
        try:
            return await check
        except LoginRefusal:
            self._oversight.quotas.attempts.charge(self._oversight.peer_host())
            raise

    def _host_rules(self) -> HostRules:
        settings = self._hub.configuration.settings
        return HostRules(settings.allow_hosts, settings.deny_hosts)


async def _send_error(
    request: HostHttpRequest, status: int, error: str, why: str, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    """Answer with an error in OAuth's format."""
    await request.answer(status, payload.dumps({"error": error, "error_description": why}), headers)


async def _read_form(request: HostHttpRequest) -> dict[str, str]:
    """Return the parameters of a request for tokens. Raises LoginRefusal, HttpRefusal."""
    if _content_type(request) != "application/x-www-form-urlencoded":
        raise LoginRefusal("invalid_request", "Content-Type must be application/x-www-form-urlencoded", status=415)
    body = await request.read_body(MAX_BODY)
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        raise invalid_request("the form is not well-formed") from None
    return authorizations.read_parameters(pairs)


def _read_basic(header: str) -> tuple[str, str]:
    """Return id and secret of a program (RFC 6749, section 2.3.1). Raises LoginRefusal."""
    scheme, _, encoded = header.partition(" ")
    try:
        credentials = base64.b64decode(encoded.strip(), validate=True).decode() if scheme.lower() == "basic" else ""
    except ValueError:
        credentials = ""
    client_id, colon, secret = credentials.partition(":")
    if not colon or not client_id:
        raise LoginRefusal("invalid_client", "the header Authorization is not Basic with id and secret", status=401)
    return unquote_plus(client_id), unquote_plus(secret)


def _content_type(request: HostHttpRequest) -> str:
    return (request.headers.get("content-type") or "").partition(";")[0].strip().lower()


def _require_field(form: Mapping[str, str], name: str) -> str:
    """Return a field of a form. Raises LoginRefusal if it is missing."""
    if name not in form:
        raise invalid_request(f"{name} is missing")
    return form[name]
