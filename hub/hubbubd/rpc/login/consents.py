"""`/oauth/authorize`: a host sends a person's browser here, and the person says yes or no."""

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from hubbubd.core.access import Permission, matches
from hubbubd.core.hosts.endpoint_paths import PROFILE, EndpointName
from hubbubd.core.logins import authorizations, clients, issued, statements
from hubbubd.core.logins.authorizations import MAX_QUERY, AuthorizationRequest
from hubbubd.core.logins.refusals import LoginRefusal, invalid_request
from hubbubd.core.logins.visits import Visitor
from hubbubd.rpc.auth.gate import Gate
from hubbubd.rpc.interceptors import Oversight
from hubbubd.rpc.login import metadata, pages, person
from hubbubd.rpc.login.pages import ConsentView, ProblemView
from hubbubd.rpc.login.person import LoginPersons
from hubbubd.rpc.login.programs import Programs
from hubbubd.rpc.mcp.transport import HostHttpRequest
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.oversight import AuthorizationCode, DecidedBefore

DAY_S: Final = 86_400.0
DAY_CHOICES: Final = (1, 30, 90)
"""The days for which a person may let a host in."""

CONSENT_S: Final = 600.0
"""Seconds within which the form of a consent page must come back."""

CONSENT_PURPOSE: Final = "consent"
"""The purpose for which the statement in the form of a consent page is signed."""

MAX_FIELDS: Final = 100

ALLOW: Final = "AllowLogin"
DENY: Final = "DenyLogin"
"""The names of the decisions in the audit log."""


class LoginConsents:
    """Asks people whether to let a program in, and records what they decide."""

    def __init__(self, hub: Hub, gate: Gate, oversight: Oversight, programs: Programs, persons: LoginPersons) -> None:
        self._hub = hub
        self._gate = gate
        self._oversight = oversight
        self._programs = programs
        self._persons = persons

    async def serve_question(self, request: HostHttpRequest, base: str) -> None:
        """Serve the page that asks whether a program is let in.

        A person whom the browser's cookie does not name is first sent to the page for a code.
        """
        query: bytes = request.scope.get("query_string", b"")
        try:
            params = _parse_query(query)
            client_id = params.get("client_id", "")
            if not client_id:
                raise invalid_request("client_id is missing")
            visit = await self._persons.find(request)
            if visit is None and clients.is_document_address(client_id):
                clients.check_document_address(client_id)
                await self._redirect_to_enter_page(request, query)  # before anything is fetched
                return
            client = await self._programs.find(client_id)
            redirect_uri = authorizations.choose_redirect_uri(client, params)
        except LoginRefusal as exc:  # only the person sees it: the redirect URI may not be the program's
            await _show_problem(request, "This log-in cannot go on", exc.description, "Start it again in the program.")
            return
        try:
            authorization = authorizations.parse_authorization(client, redirect_uri, params, base)
            if visit is None:
                await self._redirect_to_enter_page(request, query)
                return
            visitor, cookie = visit
            servers = self._find_servers(authorization.endpoint, visitor)
        except LoginRefusal as exc:
            if visit is None and not clients.leads_to_this_machine(redirect_uri):
                # Anybody may register a program. One who has not entered is not sent to just any site (RFC 9700, 4.11).
                await _show_problem(
                    request, "This log-in cannot go on", exc.description, "Start it again in the program."
                )
                return
            error_params = {"error": exc.error, "error_description": exc.description}
            address = authorizations.make_answer_url(redirect_uri, base, params.get("state"), **error_params)
            await person.redirect(request, address)
            return
        if not servers:
            await _show_problem(
                request,
                "There is no server for you here",
                f"At {authorization.endpoint.path} there is none that {visitor.name} may call.",
                "Close this page, or start the log-in again with a code of somebody who may.",
            )
            return
        await self._show_consent(request, authorization, client.document_host, visitor, cookie, servers)

    async def serve_decision(self, request: HostHttpRequest, base: str) -> None:
        """Record a person's decision from a form, if the form is not too old and was shown to this browser.

        Then sends the browser to the program with the answer, or shows why not. Raises Unavailable, ResourceExhausted.
        """
        fields = await person.read_own_form(request, base)
        if fields is None:
            return
        statement = statements.read(await self._hub.logins.statement_key(), CONSENT_PURPOSE, fields.get("request", ""))
        if statement is None or not 0 <= statement["until"] - self._hub.clock.now() <= CONSENT_S:
            await person.show_problem(request, pages.REQUEST_EXPIRED)
            return
        visit = await self._persons.find(request, fields["request"])
        if visit is None or _digest(visit[1]) != statement["cookie"]:
            await person.show_problem(request, pages.NOT_ENTERED, 403)
            return
        visitor, cookie = visit
        if not self._gate.is_valid(visitor.principal):
            await person.show_problem(request, pages.RIGHTS_GONE, 403)
            return
        members: dict[str, Any] = {**statement["asked"], "endpoint": EndpointName(*statement["asked"]["endpoint"])}
        authorization = AuthorizationRequest(**members)
        if fields.get("decision") == "allow":
            days = fields.get("days", "")
            if days not in map(str, DAY_CHOICES):
                await person.show_problem(request, pages.WRONG_FORM)
                return
            if not await self._is_unchanged(authorization):
                await person.show_problem(request, pages.CHANGED)
                return
            answer = await self._record_consent(
                authorization, visitor, int(days), fields["request"], statement["until"]
            )
        else:
            answer = await self._record_refusal(authorization, visitor, fields["request"], statement["until"])
        await self._persons.end_visit_if_insecure(cookie, fields["request"])
        if isinstance(answer, ProblemView):
            await person.show_problem(request, answer)
            return
        await person.redirect(
            request, authorizations.make_answer_url(authorization.redirect_uri, base, authorization.state, **answer)
        )

    async def _record_refusal(
        self, authorization: AuthorizationRequest, visitor: Visitor, statement: str, until: float
    ) -> dict[str, str] | ProblemView:
        """Record a refusal. Return the parameters of the host's answer, or a view if the person has allowed before.

        Raises Unavailable, ResourceExhausted.
        """
        try:
            with self._hub.audit.record_change(
                self._oversight.describe_attempt(DENY, visitor.principal, authorization.client_name)
            ):
                await self._hub.logins.refuse(visitor.name, statement, until)
        except DecidedBefore as exc:
            if exc.is_allowed:  # else the host gets the same answer again
                return pages.ALLOWED_BEFORE
        return {"error": "access_denied", "error_description": "the person has refused"}

    async def _record_consent(
        self, authorization: AuthorizationRequest, visitor: Visitor, days: int, statement: str, until: float
    ) -> dict[str, str] | ProblemView:
        """Record a consent. Return the parameters of the host's answer, or a view that tells the person why not.

        Raises Unavailable, ResourceExhausted.
        """
        try:
            servers = self._find_servers(authorization.endpoint, visitor)
        except LoginRefusal:
            servers = ()
        if not servers:
            return pages.ENDPOINT_GONE
        consent = AuthorizationCode(
            id="",  # `allow` sets it, and the time
            client_id=authorization.client_id,
            client_name=authorization.client_name,
            redirect_uri=authorization.redirect_uri,
            redirect_named=authorization.redirect_named,
            redirect_host=clients.redirect_host(authorization.redirect_uri),
            challenge=authorization.challenge,
            endpoint=authorization.endpoint.path,
            servers=servers,
            granted_by=visitor.name,
            granted_with=visitor.credential,
            ends_at=visitor.principal.expires_at,
            lasts_s=days * DAY_S,
            created_at=0.0,
        )
        try:
            with self._hub.audit.record_change(
                self._oversight.describe_attempt(ALLOW, visitor.principal, authorization.client_name)
            ):
                return {"code": await self._hub.logins.allow(consent, statement, until)}
        except DecidedBefore as exc:  # the button was pressed twice, or after the other one
            return {"code": await self._hub.logins.make_code(statement)} if exc.is_allowed else pages.REFUSED_BEFORE

    async def _is_unchanged(self, authorization: AuthorizationRequest) -> bool:
        """Return whether a program still has the name and the redirect URI that the person saw. Raises Unavailable."""
        try:
            client = await self._programs.find(authorization.client_id)
        except LoginRefusal:
            return False
        return client.name == authorization.client_name and authorizations.matches_redirect(
            client.redirect_uris, authorization.redirect_uri
        )

    def _find_servers(self, endpoint: EndpointName, visitor: Visitor) -> tuple[str, ...]:
        """Return the patterns of the servers at an endpoint that a person may call; empty if there are none.

        Raises LoginRefusal if there is no such endpoint, or it is a server that the person may not call.
        """
        server_names = [server.name for server in self._hub.servers.all()]
        allowed = sorted(visitor.principal.servers(Permission.CALL))
        if endpoint.kind == PROFILE:
            profile = self._hub.configuration.settings.profiles.get(endpoint.name)
            at_endpoint = None if profile is None else profile.servers
        else:
            at_endpoint = (
                (endpoint.name,) if endpoint.name in server_names and matches(allowed, endpoint.name) else None
            )
        if at_endpoint is None:
            raise LoginRefusal("invalid_target", f"there is no endpoint {endpoint.path} here")
        return issued.intersect_patterns(allowed, at_endpoint, server_names)

    async def _show_consent(
        self,
        request: HostHttpRequest,
        authorization: AuthorizationRequest,
        document_host: str,
        visitor: Visitor,
        cookie: str,
        servers: tuple[str, ...],
    ) -> None:
        """Answer with the page that asks the person, with the signed question in its form."""
        server_names = sorted(server.name for server in self._hub.servers.all())
        at_endpoint = [name for name in server_names if self._is_server_of(authorization.endpoint, name)]
        statement: dict[str, Any] = {
            "asked": {name: getattr(authorization, name) for name in AuthorizationRequest.__dataclass_fields__},
            "cookie": _digest(cookie),
            "until": self._hub.clock.now() + CONSENT_S,
            "page": secrets.token_urlsafe(9),  # each page is decided on by itself
        }
        signed_statement = statements.sign(await self._hub.logins.statement_key(), CONSENT_PURPOSE, statement)
        origin = clients.redirect_origin(authorization.redirect_uri)
        view = ConsentView(
            client_name=authorization.client_name,
            client_id=authorization.client_id,
            client_host=document_host or None,
            redirect_host=clients.redirect_host(authorization.redirect_uri),
            redirect_is_loopback=clients.leads_to_this_machine(authorization.redirect_uri),
            redirect_origin=origin,
            endpoint=authorization.endpoint.path,
            servers=tuple(name for name in at_endpoint if matches(servers, name)),
            denied_servers=tuple(name for name in at_endpoint if not matches(servers, name)),
            person=visitor.name,
            hidden_fields={"request": signed_statement},
            day_choices=DAY_CHOICES,
            ends_at=visitor.principal.expires_at,
        )
        await person.send_page(request, pages.consent_page(view), form_to=origin)

    def _is_server_of(self, endpoint: EndpointName, server: str) -> bool:
        """Return whether an endpoint shows a server."""
        if endpoint.kind == PROFILE:
            profile = self._hub.configuration.settings.profiles.get(endpoint.name)
            return profile is not None and profile.has_server(server)
        return server == endpoint.name

    async def _redirect_to_enter_page(self, request: HostHttpRequest, query: bytes) -> None:
        """Send the browser to the page for a code, from which it returns to this question."""
        next_url = quote(f"{metadata.AUTHORIZE}?{query.decode('latin-1')}", safe="")
        await person.redirect(request, f"{metadata.ENTER}?next={next_url}")


def _parse_query(query: bytes) -> Mapping[str, str]:
    """Return the parameters of a request to log in. Raises LoginRefusal."""
    if len(query) > MAX_QUERY:
        raise invalid_request(f"a request to log in may have {MAX_QUERY} bytes")
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        raise invalid_request("these parameters are not well-formed") from None
    return authorizations.read_parameters(pairs)


async def _show_problem(request: HostHttpRequest, title: str, explanation: str, next_step: str) -> None:
    """Answer with a page about a problem. `explanation` gets a capital letter and a full stop, if it has none."""
    await person.show_problem(
        request, ProblemView(title, f"{explanation[:1].upper()}{explanation[1:]}.".replace("..", "."), next_step)
    )


def _digest(cookie: str) -> str:
    """Return the digest of a cookie, which stands in the form: the cookie itself must not."""
    return hashlib.sha256(cookie.encode()).hexdigest()
