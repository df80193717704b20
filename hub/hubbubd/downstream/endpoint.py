"""The endpoints for hosts, one for each profile and server, and which method is served by what.

message ──> McpEndpoint.serve: table of methods ──> lists (catalog) | calls (runtime) | the endpoint's own answers
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import anyio.lowlevel
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
from hubbubd.downstream.host_calls import HostCalls, refusal_for_lost_call
from hubbubd.downstream.hosts.host import HANDSHAKE_REVISIONS, STATELESS_REVISIONS, WITH_TASKS, HostRequest, McpHost
from hubbubd.downstream.instrumentation import RequestInstrumentation
from hubbubd.downstream.lists import LISTS, EndpointLists, cache_members
from hubbubd.downstream.notifications.session_notifications import SendToSession, SessionNotifications
from hubbubd.downstream.people import tools as people_tools
from hubbubd.downstream.protocol import messages, revisions
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.downstream.questions.state_tokens import StateTokens
from hubbubd.downstream.subscriptions import listen
from hubbubd.downstream.tasks.host_tasks import add_task_capabilities, refuse_task
from hubbubd.downstream.utilities import Utilities
from hubbubd.downstream.views import own_tools
from hubbubd.downstream.views.list_groups import ListGroups
from hubbubd.downstream.views.profile_view import ProfileView
from hubbubd.downstream.views.view import EndpointIntroduction, EndpointView, ServerView, settle_lookup
from hubbubd.errors import HubError, NotFound, Unauthenticated
from hubbubd.runtime.calls import ASK, HOST
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.oversight import ConnectedHost
from hubbubd.telemetry.mcp import TOOL_ERROR

NAMING_METHODS: Final[Mapping[str, tuple[CatalogKind, str]]] = MappingProxyType(
    {
        "tools/call": (CatalogKind.TOOL, "name"),
        "prompts/get": (CatalogKind.PROMPT, "name"),
        "resources/read": (CatalogKind.RESOURCE, "uri"),
        "skills/get": (CatalogKind.SKILL, "uri"),
        "resources/directory/read": (CatalogKind.SKILL, "uri"),
    }
)
"""By method whose requests name an entry and become calls: the entry's kind, and the param with its name or URI."""

CALL_METHODS: Final = frozenset({*NAMING_METHODS, "completion/complete"})
"""All methods that become calls."""

log = structlog.get_logger(__name__)

Handler = Callable[[HostRequest], Awaitable[bytes]]


class McpEndpoint:
    """Serves the requests of hosts at one address."""

    def __init__(self, hub: Hub, view: EndpointView, tokens: StateTokens) -> None:
        self.view = view
        self._hub = hub
        self._calls = HostCalls(hub, view, tokens, self._render_result)
        self._instrumentation = RequestInstrumentation(hub.tracer, hub.meter)
        self._lists = EndpointLists(hub, view)
        utilities = Utilities(hub, view)
        common: dict[str, Handler] = {
            **dict.fromkeys(LISTS, self._lists.render_page),
            **dict.fromkeys(NAMING_METHODS, self._call_by_name),
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
        # By revision, the handlers by method.
        self._methods: dict[str, dict[str, Handler]] = {
            **dict.fromkeys(HANDSHAKE_REVISIONS, handshake),
            WITH_TASKS: {**handshake, **self._calls.session_tasks.methods},
            **dict.fromkeys(STATELESS_REVISIONS, stateless),
        }
        self._utilities = utilities
        self._removed = asyncio.Event()  # set once the endpoint serves no more
        self._open_tasks: set[asyncio.Task[Any]] = set()  # those that serve requests now

    def make_notifications(self, host: McpHost, send: SendToSession) -> SessionNotifications:
        """Return the notifications of a host's new session; `send` sends a message to it."""
        return SessionNotifications(self._hub, self.view, lambda: host.principal, send, apps=host.shows_apps)

    def add_host(self, host: McpHost) -> None:
        """List a host, whose session has started, among the hosts that operators see."""
        host.connected = self._hub.hosts.add(host.identity(self.view.name))
        self._show_to_operators(host, host.connected)

    def _show_to_operators(self, host: McpHost, connected: ConnectedHost) -> None:
        """Let operators see whether a host has a stream of its own open, and why it is not asked questions."""
        connected.is_listening = lambda: host.is_listening()  # read at each look: a session replaces the method
        connected.why_not_asked = partial(self._calls.describe_questions, host)

    def remove_host(self, host: McpHost) -> None:
        """Remove a host from the hosts that operators see."""
        if host.connected is not None:
            self._hub.hosts.remove(host.connected)
            host.connected = None

    def remove(self) -> None:
        """Stop serving: open requests are cancelled and end with `removed_error`, as later requests do."""
        self._removed.set()
        for task in self._open_tasks:
            task.cancel()

    @property
    def is_removed(self) -> bool:
        """Whether the endpoint was removed."""
        return self._removed.is_set()

    async def wait_until_removed(self) -> None:
        """Return once the endpoint was removed and its open requests have ended."""
        await self._removed.wait()
        if self._open_tasks:
            await asyncio.wait(self._open_tasks)

    async def _serve_until_removed(self, request: HostRequest, handler: Handler) -> bytes:
        """Return the result of a request. Raises what its handler does, and NotFound once the endpoint is removed."""
        task = asyncio.current_task()
        assert task is not None
        if self.is_removed:
            raise self.removed_error
        cancellations = task.cancelling()
        self._open_tasks.add(task)
        try:
            return await handler(request)
        except asyncio.CancelledError:
            if self.is_removed:
                if task.cancelling() - 1 <= cancellations:  # cancelled by `remove`, and by nothing else
                    raise self.removed_error from None
                # The scope that ends a request with its credential may have cancelled it too: it needs its own error.
                await anyio.lowlevel.checkpoint_if_cancelled()
            raise
        finally:
            if self.is_removed:  # the task stays in the set: `wait_until_removed` waits until the error is sent
                task.uncancel()
            else:
                self._open_tasks.discard(task)

    @property
    def removed_error(self) -> NotFound:
        """The error of requests once the endpoint was removed."""
        return NotFound("profile", self.view.name.removeprefix("p/"))

    def call_ids(self, principal: Principal, call_key: str) -> tuple[str, str]:
        """Return the ids that the call of a request with this key may have: as a plain call, and as a task."""
        return call_key, self._calls.tasks.derive_id(principal, call_key)

    async def resume(self, request: HostRequest) -> bytes:
        """Serve again a request that an earlier process, or another member of the fleet, received.

        Returns the response of the call that the request became; an error response if there is no such call.
        """
        principal, call = request.host.principal, None
        if request.call_key:
            try:
                call_ids = self.call_ids(principal, request.call_key)
                call = await self._calls.find_earlier_call(principal, call_ids)
            except HubError as exc:
                return messages.make_error_response(request.id, call_results.refusal_from_error(exc))
        if call is None:
            return messages.make_error_response(request.id, refusal_for_lost_call())
        earlier = call

        async def join_call(request: HostRequest) -> bytes:
            return self._render_result(request, earlier.server, await self._calls.resume_call(request, earlier))

        return await self.serve(replace(request, method=call.method, params=payload.loads(call.params)), join_call)

    async def serve(self, request: HostRequest, handler: Handler | None = None) -> bytes:
        """Serve one request and return the response for its host. Never raises but for cancellation.

        `handler` replaces the handler of the request's method.
        """
        hosts, host = self._hub.hosts, request.host
        if (connected := host.connected) is None:
            connected = hosts.find_or_add(host.identity(self.view.name))
            self._show_to_operators(host, connected)
        with (
            self._instrumentation.measure(request) as outcome,
            hosts.track_request(connected, request.method[:100]) as open_request,
        ):
            request.open_request = open_request
            try:
                handler = handler or self._methods[host.revision].get(request.method)
                if handler is None or not self._declares_method(request):
                    raise messages.refusal_for_method(request.method)
                result = await self._serve_until_removed(request, handler)
                # A search in the bytes is good enough for a measurement; the result is not parsed for it.
                outcome.error = TOOL_ERROR if request.method == "tools/call" and b'"isError":true' in result else ""
                return messages.make_result_response(request.id, result)
            except Refusal as refusal:
                outcome.error = str(refusal.code)
                return messages.make_error_response(request.id, refusal)
            except HubError as exc:
                outcome.error = exc.reason
                return messages.make_error_response(request.id, call_results.refusal_from_error(exc))
            except Exception as exc:
                outcome.error = type(exc).__name__
                log.exception("request of a host failed: internal error", method=request.method[:100])
                return messages.make_error_response(request.id, messages.refusal_for_internal_error(type(exc).__name__))

    def _declares_method(self, request: HostRequest) -> bool:
        """Return whether a request's method is one of MCP itself, or of an extension that this endpoint declares."""
        if request.method not in skills.METHODS:
            return True
        introduction = self.view.introduction(request.host.principal)
        return skills.serves_method(extension_entries(introduction.capabilities), request.method)

    async def _initialize(self, request: HostRequest) -> bytes:
        """Serve `initialize`: return what the endpoint says of itself."""
        # Whether a profile declares MCP Apps depends on its tools: on whether they have pages.
        await self.view.settle(CatalogKind.TOOL)
        introduction = self.view.introduction(request.host.principal)
        members: dict[str, Any] = {
            "protocolVersion": request.host.revision,
            "capabilities": self._capabilities_for(introduction, request.host),
            "serverInfo": revisions.select_server_info(introduction.server_info, request.host.revision),
        }
        if introduction.instructions:
            members["instructions"] = introduction.instructions
        return payload.dumps(members)

    async def _discover(self, request: HostRequest) -> bytes:
        """Serve `server/discover`: return what the endpoint says of itself."""
        # Whether a profile declares MCP Apps depends on its tools: on whether they have pages.
        await self.view.settle(CatalogKind.TOOL)
        introduction = self.view.introduction(request.host.principal)
        members: dict[str, Any] = {
            "supportedVersions": [*STATELESS_REVISIONS, *HANDSHAKE_REVISIONS],
            "capabilities": self._capabilities_for(introduction, request.host),
            "_meta": {"io.modelcontextprotocol/serverInfo": introduction.server_info},
            **cache_members(request, 0),
        }
        if introduction.instructions:
            members["instructions"] = introduction.instructions
        return payload.dumps(members)

    def _capabilities_for(self, introduction: EndpointIntroduction, host: McpHost) -> dict[str, Any]:
        """Return the capabilities of the endpoint as the revision of a host has them."""
        return add_task_capabilities(revisions.select_capabilities(introduction.capabilities, host.revision), host)

    async def _call_by_name(self, request: HostRequest) -> bytes:
        """Serve a request that names a tool, prompt, resource or skill, of the hub itself or of a server."""
        kind, member = NAMING_METHODS[request.method]
        params = request.params
        if (
            kind is CatalogKind.TOOL
            and params.get("name") == tickets.RESULT
            and self.view.policy.on_hold_end == "ticket"
        ):
            return self._render_result(request, *await self._calls.fetch_earlier_result(request))
        if kind is CatalogKind.TOOL and self.view.has_people_tools and params.get("name") in people_tools.ALL:
            return await self._ask_people(request)
        by_search = False  # whether the request calls a tool by way of `hubbub_call_tool`
        if kind is CatalogKind.TOOL and self.view.searches_tools:
            if params.get("name") == own_tools.SEARCH_TOOL:
                refuse_task(request)
                await self._lists.wait_for_first_lists(CatalogKind.TOOL, request)
                search_result = await own_tools.search_tools(self.view, params, request.host.principal)
                return revisions.render_result(request.method, search_result, request.host.revision, None)
            if by_search := params.get("name") == own_tools.CALL_TOOL:
                params = own_tools.unwrap_call(params)
        requested_name = params.get(member)
        if not isinstance(requested_name, str):
            raise Refusal(INVALID_PARAMS, f"params.{member} must be a string")
        messages.check_length(requested_name, f"params.{member}")
        if not self.view.transparent:  # at a server's own endpoint the server decides which names exist
            await settle_lookup(self.view, kind)
        host, own_name = request.host, requested_name
        try:
            # A search finds tools for models only, so its calls are treated as those of a host without pages of apps.
            target = self.view.find_target(kind, requested_name, host.principal, None if by_search else host.pages_read)
            own_name, request.by_app = target.name, target.app
            if request.method in skills.METHODS:
                self._require_skills(target.server, request.method)
            params = {**params, member: own_name}
            if request.log_level is None:
                result = await self._calls.call(request, target.server, request.method, params)
            else:
                async with self._utilities.with_log_level(request, target.server):
                    result = await self._calls.call(request, target.server, request.method, params)
            if kind is not CatalogKind.RESOURCE:
                return self._render_result(request, target.server, result)
            if host.note_read(target.server, own_name) and request.notifications is not None:
                await request.notifications.store_change(partial(with_page_of, target.server))
            return self._render_result(request, target.server, result, spelled={own_name: requested_name})
        except (NotFound, Refusal) as exc:
            if kind is not CatalogKind.RESOURCE:
                raise
            raise revisions.render_read_error(exc, requested_name, own_name, host.revision) from None

    def _require_skills(self, server: str, method: str) -> None:
        """Raise Refusal if a server is known to lack a method of skills; a request's URI has led to this server."""
        record = self._hub.servers.find(server)
        if record is None or record.capabilities is None:  # not connected yet: the call waits, and the server decides
            return
        capabilities: dict[str, Any] = payload.loads(record.capabilities)
        if not skills.serves_method(extension_entries(capabilities), method):
            problem = "reads no directories" if method == skills.DIRECTORY_READ else "has no skills"
            raise Refusal(INVALID_PARAMS, f"the server of params.uri, {server}, {problem}")

    async def _ask_people(self, request: HostRequest) -> bytes:
        """Serve the tools that ask people: return people's answer, or their decision about a permission."""
        if not self._hub.calls.has_queue(HOST):
            raise Refusal(HUB_FAILED, "a fleet of hubs does not ask people for hosts; use a hub of its own for it")
        if not request.host.principal.may(Permission.CALL, HOST):
            raise Refusal(HUB_FAILED, f"this host may not ask people: it has no permission to call {HOST!r}")
        if request.params["name"] == people_tools.PERMIT:
            refuse_task(request)
            result = await self._calls.permits.render_decision(request)
        else:
            question = people_tools.parse_question(request.params)
            result = await self._calls.call(request, HOST, ASK, {**request.params, "arguments": question})
        return revisions.render_result("tools/call", result, request.host.revision, None)

    def _render_result(
        self, request: HostRequest, server: str, result: bytes, method: str = "", spelled: Spelling = USUAL_SPELLING
    ) -> bytes:
        """Return a server's result as a host sees it.

        `method` is the method whose result it is, by default the request's. `spelled` maps URIs of the server to the
        spelling that the host has used for them.
        """
        rendered, origin = self.view.render_result(server, result, spelled), self._hub.servers.protocol_version(server)
        return revisions.render_result(method or request.method, rendered, request.host.revision, origin)


class McpEndpoints:
    """The endpoints, each made at its first use. A caller finds no endpoint of a server that it may not call."""

    def __init__(self, hub: Hub, tokens: StateTokens) -> None:
        self._hub = hub
        self._tokens = tokens
        self._lists = ListGroups()
        self._endpoints: dict[str, McpEndpoint] = {}
        hub.configuration.on_adopted(self._remove_deleted_profiles)

    def find(self, endpoint: EndpointName, caller: Principal) -> McpEndpoint:
        """Return an endpoint.

        Raises NotFound, and Unauthenticated if the caller's token is for another endpoint (RFC 8707).
        """
        if caller.endpoint and endpoint.path != caller.endpoint:
            raise Unauthenticated(
                f"this token was given for {caller.endpoint}: log in for {endpoint.path}, too",
                reason="TOKEN_FOR_ENDPOINT",
                metadata={"endpoint": caller.endpoint},
            )
        return self.find_profile(endpoint.name) if endpoint.kind == PROFILE else self.find_server(endpoint.name, caller)

    def find_profile(self, name: str) -> McpEndpoint:
        """Return the endpoint of a profile. Raises NotFound."""
        if name != DEFAULT and name not in self._hub.configuration.settings.profiles:
            raise NotFound("profile", name)
        return self._endpoints.get(f"p/{name}") or self._add_endpoint(
            ProfileView(self._hub, name, lambda: self._profile_settings(name), self._lists)
        )

    def find_server(self, name: str, caller: Principal) -> McpEndpoint:
        """Return the endpoint of one server. Raises NotFound, also if the caller may not call the server."""
        endpoint = self._endpoints.get(f"s/{name}")
        view = ServerView(self._hub, name) if endpoint is None else endpoint.view
        if not view.servers(caller):
            raise NotFound("server", name)
        self._hub.servers.config(name)  # raises NotFound
        return endpoint or self._add_endpoint(view)

    def who_answers(self, endpoint: McpEndpoint) -> dict[str, str]:
        """Return by kind of question whom an endpoint asks: the values of the profile's `questions` settings."""
        policy = endpoint.view.policy
        return {name: getattr(policy, name) for name in QuestionSettings.model_fields}

    def _add_endpoint(self, view: EndpointView) -> McpEndpoint:
        """Make the endpoint of a view, store it under the view's name, and return it."""
        endpoint = self._endpoints[view.name] = McpEndpoint(self._hub, view, self._tokens)
        return endpoint

    def _remove_deleted_profiles(self, settings: HubSettings) -> None:
        """Remove the endpoints of profiles that the new settings do not have."""
        current_names = {f"p/{name}" for name in (DEFAULT, *settings.profiles)}
        for name in [each for each in self._endpoints if each.startswith("p/") and each not in current_names]:
            self._endpoints.pop(name).remove()

    def _profile_settings(self, name: str) -> ProfileSettings:
        """Return the settings of a profile as they are now."""
        return self._hub.configuration.settings.profiles.get(name, DEFAULT_PROFILE)
