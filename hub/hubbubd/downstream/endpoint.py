"""The endpoints for hosts, one for each profile and server, and which method is served by what.

message ──> McpEndpoint.serve: table of methods ──> lists (catalog) | calls (runtime) | the endpoint's own answers
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import anyio
import structlog

from hubbubd import payload
from hubbubd.config import HubSettings
from hubbubd.config.sections.mcp import DEFAULT, DEFAULT_PROFILE, ProfileSettings, QuestionSettings
from hubbubd.core.access import Permission, Principal
from hubbubd.core.hosts import skills
from hubbubd.core.hosts.endpoint_paths import PROFILE, EndpointName
from hubbubd.core.hosts.extensions import extension_entries
from hubbubd.core.hosts.host_sessions import with_page_of
from hubbubd.core.hosts.host_uris import USUAL_SPELLING, Spelling
from hubbubd.core.jsonrpc import HUB_FAILED, INVALID_PARAMS
from hubbubd.core.servers.catalog import CatalogKind
from hubbubd.downstream.calls import call_results, tickets
from hubbubd.downstream.host_calls import HostCalls, refuse_lost
from hubbubd.downstream.hosts.host import HANDSHAKE_REVISIONS, STATELESS_REVISIONS, WITH_TASKS, HostRequest, McpHost
from hubbubd.downstream.instrumentation import RequestInstrumentation
from hubbubd.downstream.lists import LISTS, EndpointLists, cache_members
from hubbubd.downstream.notifications.session_notifications import SessionNotifications, TellSession
from hubbubd.downstream.people import tools as people_tools
from hubbubd.downstream.protocol import messages, revisions
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.downstream.questions.state_tokens import StateTokens
from hubbubd.downstream.subscriptions import listen
from hubbubd.downstream.tasks.host_tasks import refuse_task, with_tasks
from hubbubd.downstream.utilities import Utilities
from hubbubd.downstream.views import own_tools
from hubbubd.downstream.views.list_groups import ListGroups
from hubbubd.downstream.views.profile_view import ProfileView
from hubbubd.downstream.views.view import EndpointIntroduction, EndpointView, ServerView, settle_targets
from hubbubd.errors import HubError, NotFound, Unauthenticated
from hubbubd.runtime.calls import ASK, HOST
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.oversight import ConnectedHost
from hubbubd.telemetry.mcp import TOOL_ERROR

NAMED: Final[Mapping[str, tuple[CatalogKind, str]]] = MappingProxyType(
    {
        "tools/call": (CatalogKind.TOOL, "name"),
        "prompts/get": (CatalogKind.PROMPT, "name"),
        "resources/read": (CatalogKind.RESOURCE, "uri"),
        "skills/get": (CatalogKind.SKILL, "uri"),
        "resources/directory/read": (CatalogKind.SKILL, "uri"),
    }
)
"""The methods that become calls, with the param that names what they are about."""

BECOME_CALLS: Final = frozenset({*NAMED, "completion/complete"})

log = structlog.get_logger(__name__)

Handler = Callable[[HostRequest], Awaitable[bytes]]


class McpEndpoint:
    """Serves the requests of hosts at one address."""

    def __init__(self, hub: Hub, view: EndpointView, tokens: StateTokens) -> None:
        self.view = view
        self._hub = hub
        self._calls = HostCalls(hub, view, tokens, self._render)
        self._instrumentation = RequestInstrumentation(hub.tracer, hub.meter)
        self._lists = EndpointLists(hub, view)
        utilities = Utilities(hub, view)
        common: dict[str, Handler] = {
            **dict.fromkeys(LISTS, self._lists.render_page),
            **dict.fromkeys(NAMED, self._call_by_name),
            "completion/complete": utilities.complete,
        }
        handshake: dict[str, Handler] = {
            **common,
            "initialize": self._initialize,
            "ping": utilities.ping,
            "logging/setLevel": utilities.set_level,
            "resources/subscribe": utilities.subscribe,
            "resources/unsubscribe": utilities.unsubscribe,
        }
        stateless: dict[str, Handler] = {
            **common,
            "server/discover": self._discover,
            **self._calls.extension.methods,
            "subscriptions/listen": partial(listen, hub, view, self._calls.extension),
        }
        self._methods: dict[str, dict[str, Handler]] = {
            **dict.fromkeys(HANDSHAKE_REVISIONS, handshake),
            WITH_TASKS: {**handshake, **self._calls.session_tasks.methods},
            **dict.fromkeys(STATELESS_REVISIONS, stateless),
        }
        self._utilities = utilities
        self._removed = asyncio.Event()
        self._open: dict[anyio.CancelScope, asyncio.Task[Any]] = {}

    def make_notifications(self, host: McpHost, tell: TellSession) -> SessionNotifications:
        """Return what tells a new session of a host what belongs to no request; `tell` as there."""
        return SessionNotifications(self._hub, self.view, lambda: host.principal, tell, apps=host.shows_apps)

    def add_host(self, host: McpHost) -> None:
        """Show operators a host whose session has begun."""
        host.connected = self._hub.hosts.add(host.introduction(self.view.name))
        self._show(host, host.connected)

    def _show(self, host: McpHost, connected: ConnectedHost) -> None:
        """Have operators see what is to be seen of a host now."""
        connected.is_listening = lambda: host.is_listening()
        connected.asked = partial(self._calls.describe_questions, host)

    def remove_host(self, host: McpHost) -> None:
        """Show operators a host no more."""
        if host.connected is not None:
            self._hub.hosts.remove(host.connected)
            host.connected = None

    def remove(self) -> None:
        """Serve nothing more: what is open ends with an error."""
        self._removed.set()
        for scope in self._open:
            scope.cancel()

    @property
    def is_removed(self) -> bool:
        """Whether it serves nothing more."""
        return self._removed.is_set()

    async def wait_until_removed(self) -> None:
        """Return once the endpoint was removed, and what was open has ended."""
        await self._removed.wait()
        if self._open:
            await asyncio.wait(set(self._open.values()))

    async def _serve_until_removed(self, request: HostRequest, handler: Handler) -> bytes:
        """Return the result of a request. Raises what its handler does, and NotFound once the endpoint is removed."""
        task = asyncio.current_task()
        assert task is not None
        if self._removed.is_set():
            raise self.removal
        with anyio.CancelScope() as scope:  # cancelled by `remove`
            self._open[scope] = task
            try:
                return await handler(request)
            finally:
                if not self.is_removed:  # else `wait_until_removed` waits until the host was told, too
                    del self._open[scope]
        raise self.removal

    @property
    def removal(self) -> NotFound:
        """What to say once it was removed."""
        return NotFound("profile", self.view.name.removeprefix("p/"))

    def call_ids(self, principal: Principal, call_key: str) -> tuple[str, str]:
        """Return the ids that the call of a request with this key may have: as a call alone, and as a task."""
        return call_key, self._calls.tasks.id_of(principal, call_key)

    async def resume(self, request: HostRequest) -> bytes:
        """Serve a request that came to an earlier process, or to another member: by its call, or it is lost."""
        principal, call = request.host.principal, None
        if request.call_key:
            try:
                call_ids = self.call_ids(principal, request.call_key)
                call = await self._calls.find_earlier(principal, call_ids)
            except HubError as exc:
                return messages.error(request.id, call_results.refusal_of_error(exc))
        if call is None:
            return messages.error(request.id, refuse_lost())
        earlier = call

        async def handler(request: HostRequest) -> bytes:
            return self._render(request, earlier.server, await self._calls.resume(request, earlier))

        return await self.serve(replace(request, method=call.method, params=payload.loads(call.params)), handler)

    async def serve(self, request: HostRequest, handler: Handler | None = None) -> bytes:
        """Serve one request and return the response for its host. Never raises but for cancellation.

        `handler` is used instead of that of its method.
        """
        hosts, host = self._hub.hosts, request.host
        if (shown := host.connected) is None:
            shown = hosts.find_or_add(host.introduction(self.view.name))
            self._show(host, shown)
        with (
            self._instrumentation.request(request) as outcome,
            hosts.track_request(shown, request.method[:100]) as open_request,
        ):
            request.shown = open_request
            try:
                handler = handler or self._methods[host.revision].get(request.method)
                if handler is None or not self._declares_method(request):
                    raise messages.refuse_method(request.method)
                result = await self._serve_until_removed(request, handler)
                outcome.error = TOOL_ERROR if request.method == "tools/call" and b'"isError":true' in result else ""
                return messages.result(request.id, result)
            except Refusal as refusal:
                outcome.error = str(refusal.code)
                return messages.error(request.id, refusal)
            except HubError as exc:
                outcome.error = exc.reason
                return messages.error(request.id, call_results.refusal_of_error(exc))
            except Exception as exc:
                outcome.error = type(exc).__name__
                log.exception("request of a host failed: internal error", method=request.method[:100])
                return messages.error(request.id, messages.refuse_by_fault(type(exc).__name__))

    def _declares_method(self, request: HostRequest) -> bool:
        """Return whether a method is of the protocol itself, or of an extension that this endpoint declares."""
        if request.method not in skills.METHODS:
            return True
        introduction = self.view.introduction(request.host.principal)
        return skills.serves_method(extension_entries(introduction.capabilities), request.method)

    async def _initialize(self, request: HostRequest) -> bytes:
        await self.view.settle(CatalogKind.TOOL)
        introduction = self.view.introduction(request.host.principal)
        members: dict[str, Any] = {
            "protocolVersion": request.host.revision,
            "capabilities": self._capabilities(introduction, request.host),
            "serverInfo": revisions.server_info(introduction.server_info, request.host.revision),
        }
        if introduction.instructions:
            members["instructions"] = introduction.instructions
        return payload.dumps(members)

    async def _discover(self, request: HostRequest) -> bytes:
        await self.view.settle(CatalogKind.TOOL)
        introduction = self.view.introduction(request.host.principal)
        members: dict[str, Any] = {
            "supportedVersions": [*STATELESS_REVISIONS, *HANDSHAKE_REVISIONS],
            "capabilities": self._capabilities(introduction, request.host),
            "_meta": {"io.modelcontextprotocol/serverInfo": introduction.server_info},
            **cache_members(request, 0),
        }
        if introduction.instructions:
            members["instructions"] = introduction.instructions
        return payload.dumps(members)

    def _capabilities(self, introduction: EndpointIntroduction, host: McpHost) -> dict[str, Any]:
        return with_tasks(revisions.capabilities(introduction.capabilities, host.revision), host)

    async def _call_by_name(self, request: HostRequest) -> bytes:
        kind, member = NAMED[request.method]
        params = request.params
        if (
            kind is CatalogKind.TOOL
            and params.get("name") == tickets.RESULT
            and self.view.policy.on_hold_end == "ticket"
        ):
            return self._render(request, *await self._calls.result_of_earlier(request))
        if kind is CatalogKind.TOOL and self.view.people and params.get("name") in people_tools.ALL:
            return await self._ask_people(request)
        by_search = False  # the call of a tool that a search has found
        if kind is CatalogKind.TOOL and self.view.searches_tools:
            if params.get("name") == own_tools.SEARCH:
                refuse_task(request)
                await self._lists.wait(CatalogKind.TOOL, request)
                found = await own_tools.search_tools(self.view, params, request.host.principal)
                return revisions.result(request.method, found, request.host.revision, None)
            if by_search := params.get("name") == own_tools.CALL:
                params = own_tools.unwrap_call(params)
        named = params.get(member)
        if not isinstance(named, str):
            raise Refusal(INVALID_PARAMS, f"params.{member} must be a string")
        messages.check_length(named, f"params.{member}")
        if not self.view.transparent:  # a server's own endpoint leaves it to the server what is there
            await settle_targets(self.view, kind)
        host, own = request.host, named
        try:
            target = self.view.target(kind, named, host.principal, None if by_search else host.pages_read)
            own, request.by_app = target.name, target.app
            if request.method in skills.METHODS:
                self._require_skills(target.server, request.method)
            params = {**params, member: own}
            if request.log_level is None:
                result = await self._calls.call(request, target.server, request.method, params)
            else:
                async with self._utilities.with_log_level(request, target.server):
                    result = await self._calls.call(request, target.server, request.method, params)
            if kind is not CatalogKind.RESOURCE:
                return self._render(request, target.server, result)
            if host.note_read(target.server, own) and request.notifications is not None:
                await request.notifications.keep(partial(with_page_of, target.server))
            return self._render(request, target.server, result, spelled={own: named})
        except (NotFound, Refusal) as exc:
            if kind is not CatalogKind.RESOURCE:
                raise
            raise revisions.not_read(exc, named, own, host.revision) from None

    def _require_skills(self, server: str, method: str) -> None:
        """Raise Refusal where a URI leads to a server that does not have a method of skills, as far as is known."""
        record = self._hub.servers.find(server)
        if record is None or record.capabilities is None:  # not connected yet: the call waits, and the server decides
            return
        capabilities: dict[str, Any] = payload.loads(record.capabilities)
        if not skills.serves_method(extension_entries(capabilities), method):
            lacks = "reads no directories" if method == skills.DIRECTORY_READ else "has no skills"
            raise Refusal(INVALID_PARAMS, f"the server of params.uri, {server}, {lacks}")

    async def _ask_people(self, request: HostRequest) -> bytes:
        """Return what people have answered, or whether they permit what a host wants to do."""
        if not self._hub.calls.has_queue(HOST):
            raise Refusal(HUB_FAILED, "a fleet of hubs does not ask people for hosts; use a hub of its own for it")
        if not request.host.principal.may(Permission.CALL, HOST):
            raise Refusal(HUB_FAILED, f"this host may not ask people: it has no permission to call {HOST!r}")
        if request.params["name"] == people_tools.PERMIT:
            refuse_task(request)
            result = await self._calls.permits.result(request)
        else:
            question = people_tools.parse_question(request.params)
            result = await self._calls.call(request, HOST, ASK, {**request.params, "arguments": question})
        return revisions.result("tools/call", result, request.host.revision, None)

    def _render(
        self, request: HostRequest, server: str, result: bytes, method: str = "", spelled: Spelling = USUAL_SPELLING
    ) -> bytes:
        """Return a server's result as a host sees it: that of its request, or of another method."""
        shown, origin = self.view.render_result(server, result, spelled), self._hub.servers.protocol_version(server)
        return revisions.result(method or request.method, shown, request.host.revision, origin)


class McpEndpoints:
    """Endpoints, made when they are first asked for. What a caller may not use is not there."""

    def __init__(self, hub: Hub, tokens: StateTokens) -> None:
        self._hub = hub
        self._tokens = tokens
        self._lists = ListGroups()
        self._made: dict[str, McpEndpoint] = {}
        hub.configuration.on_adopted(self._adopt)

    def find(self, endpoint: EndpointName, caller: Principal) -> McpEndpoint:
        """Return an endpoint. Raises NotFound, and Unauthenticated for a token that is for another one (RFC 8707)."""
        if caller.endpoint and endpoint.path != caller.endpoint:
            raise Unauthenticated(
                f"this token was given for {caller.endpoint}: log in for {endpoint.path}, too",
                reason="TOKEN_FOR_ENDPOINT",
                metadata={"endpoint": caller.endpoint},
            )
        return self.profile(endpoint.name) if endpoint.kind == PROFILE else self.server(endpoint.name, caller)

    def profile(self, name: str) -> McpEndpoint:
        """Return the endpoint of a profile. Raises NotFound."""
        if name != DEFAULT and name not in self._hub.configuration.settings.profiles:
            raise NotFound("profile", name)
        return self._made.get(f"p/{name}") or self._keep(
            ProfileView(self._hub, name, lambda: self._settings(name), self._lists)
        )

    def server(self, name: str, caller: Principal) -> McpEndpoint:
        """Return the endpoint of one server. Raises NotFound."""
        endpoint = self._made.get(f"s/{name}")
        view = ServerView(self._hub, name) if endpoint is None else endpoint.view
        if not view.servers(caller):
            raise NotFound("server", name)
        self._hub.servers.config(name)  # raises
        return endpoint or self._keep(view)

    def questions(self, endpoint: McpEndpoint) -> dict[str, str]:
        """Return who is asked what servers ask, by kind."""
        policy = endpoint.view.policy
        return {name: getattr(policy, name) for name in QuestionSettings.model_fields}

    def _keep(self, view: EndpointView) -> McpEndpoint:
        made = self._made[view.name] = McpEndpoint(self._hub, view, self._tokens)
        return made

    def _adopt(self, settings: HubSettings) -> None:
        """Remove the endpoints of profiles that are no more."""
        there = {f"p/{name}" for name in (DEFAULT, *settings.profiles)}
        for name in [each for each in self._made if each.startswith("p/") and each not in there]:
            self._made.pop(name).remove()

    def _settings(self, name: str) -> ProfileSettings:
        return self._hub.configuration.settings.profiles.get(name, DEFAULT_PROFILE)
