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
DAYS: Final = (1, 30, 90)
"""For how long a person may let a host in."""

CONSENT_S: Final = 600.0
"""Seconds for which a page of consent is good."""

CONSENT: Final = "consent"
"""The purpose for which the statement in its form is signed."""

MAX_FIELDS: Final = 100

ALLOW: Final = "AllowLogin"
DENY: Final = "DenyLogin"
"""What the decisions are called in the audit log."""


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
            found = await self._persons.find(request)
            if found is None and clients.is_document_address(client_id):
                clients.check_document_address(client_id)
                await self._redirect_to_enter_page(request, query)  # before anything is fetched
                return
            client = await self._programs.find(client_id)
            redirect_uri = authorizations.choose_redirect_uri(client, params)
        except LoginRefusal as exc:  # only the person sees it: the redirect URI may not be the program's
            await _show_problem(request, "This log-in cannot go on", exc.why, "Start it again in the program.")
            return
        try:
            asked = authorizations.parse_authorization(client, redirect_uri, params, base)
            if found is None:
                await self._redirect_to_enter_page(request, query)
                return
            visitor, cookie = found
            servers = self._find_servers(asked.endpoint, visitor)
        except LoginRefusal as exc:
            if found is None and not clients.leads_to_this_machine(redirect_uri):
                # Anybody may register a program. One who has not entered is not sent to just any site (RFC 9700, 4.11).
                await _show_problem(request, "This log-in cannot go on", exc.why, "Start it again in the program.")
                return
            refused = {"error": exc.error, "error_description": exc.why}
            address = authorizations.make_answer_url(redirect_uri, base, params.get("state"), **refused)
            await person.redirect(request, address)
            return
        if not servers:
            await _show_problem(
                request,
                "There is no server for you here",
                f"At {asked.endpoint.path} there is none that {visitor.name} may call.",
                "Close this page, or start the log-in again with a code of somebody who may.",
            )
            return
        await self._show_consent(request, asked, client.document_host, visitor, cookie, servers)

    async def serve_decision(self, request: HostHttpRequest, base: str) -> None:
        """Serve the form with a person's decision, if its signed question is not too old and was shown to this browser.

        Sends the browser to the program with the answer, or shows what is wrong. Raises Unavailable, ResourceExhausted.
        """
        fields = await person.read_own_form(request, base)
        if fields is None:
            return
        said = statements.read(await self._hub.logins.statement_key(), CONSENT, fields.get("request", ""))
        if said is None or not 0 <= said["until"] - self._hub.clock.now() <= CONSENT_S:
            await person.show_problem(request, pages.REQUEST_EXPIRED)
            return
        found = await self._persons.find(request, fields["request"])
        if found is None or _digest(found[1]) != said["cookie"]:
            await person.show_problem(request, pages.NOT_ENTERED, 403)
            return
        visitor, cookie = found
        if not self._gate.is_valid(visitor.principal):
            await person.show_problem(request, pages.RIGHTS_GONE, 403)
            return
        members: dict[str, Any] = {**said["asked"], "endpoint": EndpointName(*said["asked"]["endpoint"])}
        asked = AuthorizationRequest(**members)
        if fields.get("decision") == "allow":
            days = fields.get("days", "")
            if days not in map(str, DAYS):
                await person.show_problem(request, pages.WRONG_FORM)
                return
            if not await self._is_unchanged(asked):
                await person.show_problem(request, pages.CHANGED)
                return
            answer = await self._record_consent(asked, visitor, int(days), fields["request"], said["until"])
        else:
            answer = await self._record_refusal(asked, visitor, fields["request"], said["until"])
        await self._persons.end_visit_if_insecure(cookie, fields["request"])
        if isinstance(answer, ProblemView):
            await person.show_problem(request, answer)
            return
        await person.redirect(request, authorizations.make_answer_url(asked.redirect_uri, base, asked.state, **answer))

    async def _record_refusal(
        self, asked: AuthorizationRequest, visitor: Visitor, statement: str, until: float
    ) -> dict[str, str] | ProblemView:
        """Record a refusal, and return the parameters that the host gets, or the view that the person gets instead.

        Raises Unavailable, ResourceExhausted.
        """
        try:
            with self._hub.audit.record_change(
                self._oversight.describe_attempt(DENY, visitor.principal, asked.client_name)
            ):
                await self._hub.logins.refuse(visitor.name, statement, until)
        except DecidedBefore as exc:
            if exc.is_allowed:  # else the host gets the same answer again
                return pages.ALLOWED_BEFORE
        return {"error": "access_denied", "error_description": "the person has refused"}

    async def _record_consent(
        self, asked: AuthorizationRequest, visitor: Visitor, days: int, statement: str, until: float
    ) -> dict[str, str] | ProblemView:
        """Record a consent, and return the parameters that the host gets, or the view that the person gets instead.

        Raises Unavailable, ResourceExhausted.
        """
        try:
            servers = self._find_servers(asked.endpoint, visitor)
        except LoginRefusal:
            servers = ()
        if not servers:
            return pages.ENDPOINT_GONE
        consent = AuthorizationCode(
            id="",  # `allow` sets it, and the time
            client_id=asked.client_id,
            client_name=asked.client_name,
            redirect_uri=asked.redirect_uri,
            redirect_named=asked.redirect_named,
            redirect_host=clients.redirect_host(asked.redirect_uri),
            challenge=asked.challenge,
            endpoint=asked.endpoint.path,
            servers=servers,
            granted_by=visitor.name,
            granted_with=visitor.credential,
            ends_at=visitor.principal.expires_at,
            lasts_s=days * DAY_S,
            created_at=0.0,
        )
        try:
            with self._hub.audit.record_change(
                self._oversight.describe_attempt(ALLOW, visitor.principal, asked.client_name)
            ):
                return {"code": await self._hub.logins.allow(consent, statement, until)}
        except DecidedBefore as exc:  # the button was pressed twice, or after the other one
            return {"code": await self._hub.logins.make_code(statement)} if exc.is_allowed else pages.REFUSED_BEFORE

    async def _is_unchanged(self, asked: AuthorizationRequest) -> bool:
        """Return whether name and redirect URIs of a program still are as the person was shown. Raises Unavailable."""
        try:
            client = await self._programs.find(asked.client_id)
        except LoginRefusal:
            return False
        return client.name == asked.client_name and authorizations.matches_redirect(
            client.redirect_uris, asked.redirect_uri
        )

    def _find_servers(self, endpoint: EndpointName, visitor: Visitor) -> tuple[str, ...]:
        """Return the patterns of the servers at an endpoint that a person may call; empty if there are none.

        Raises LoginRefusal if there is no such endpoint, or it is a server that the person may not call.
        """
        known = [server.name for server in self._hub.servers.all()]
        may = sorted(visitor.principal.servers(Permission.CALL))
        if endpoint.kind == PROFILE:
            profile = self._hub.configuration.settings.profiles.get(endpoint.name)
            shown = None if profile is None else profile.servers
        else:
            shown = (endpoint.name,) if endpoint.name in known and matches(may, endpoint.name) else None
        if shown is None:
            raise LoginRefusal("invalid_target", f"there is no endpoint {endpoint.path} here")
        return issued.intersect_patterns(may, shown, known)

    async def _show_consent(
        self,
        request: HostHttpRequest,
        asked: AuthorizationRequest,
        document_host: str,
        visitor: Visitor,
        cookie: str,
        servers: tuple[str, ...],
    ) -> None:
        """Answer with the page that asks the person, with the signed question in its form."""
        known = sorted(server.name for server in self._hub.servers.all())
        at_endpoint = [name for name in known if self._is_server_of(asked.endpoint, name)]
        statement: dict[str, Any] = {
            "asked": {name: getattr(asked, name) for name in AuthorizationRequest.__dataclass_fields__},
            "cookie": _digest(cookie),
            "until": self._hub.clock.now() + CONSENT_S,
            "page": secrets.token_urlsafe(9),  # each page is decided on by itself
        }
        hidden = statements.sign(await self._hub.logins.statement_key(), CONSENT, statement)
        origin = clients.redirect_origin(asked.redirect_uri)
        view = ConsentView(
            client_name=asked.client_name,
            client_id=asked.client_id,
            client_host=document_host or None,
            redirect_host=clients.redirect_host(asked.redirect_uri),
            redirect_is_loopback=clients.leads_to_this_machine(asked.redirect_uri),
            redirect_origin=origin,
            endpoint=asked.endpoint.path,
            servers=tuple(name for name in at_endpoint if matches(servers, name)),
            others=tuple(name for name in at_endpoint if not matches(servers, name)),
            person=visitor.name,
            hidden={"request": hidden},
            days=DAYS,
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
        then = quote(f"{metadata.AUTHORIZE}?{query.decode('latin-1')}", safe="")
        await person.redirect(request, f"{metadata.ENTER}?next={then}")


def _parse_query(query: bytes) -> Mapping[str, str]:
    """Return the parameters of a request to log in. Raises LoginRefusal."""
    if len(query) > MAX_QUERY:
        raise invalid_request(f"a request to log in may have {MAX_QUERY} bytes")
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        raise invalid_request("these parameters are not well-formed") from None
    return authorizations.read_parameters(pairs)


async def _show_problem(request: HostHttpRequest, title: str, what: str, next_step: str) -> None:
    """Answer with a page about a problem; `what` becomes a sentence, if it is none yet."""
    await person.show_problem(
        request, ProblemView(title, f"{what[:1].upper()}{what[1:]}.".replace("..", "."), next_step)
    )


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()
