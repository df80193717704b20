"""`connect` and the `Hub` that it returns."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hubbub_client.data.literals import LogLevel
from hubbub_client.data.records import ResourceUpdate
from hubbub_client.data.results import ToolResult
from hubbub_client.handlers import H, Handlers
from hubbub_client.options import CallOptions
from hubbub_client.services.calls import TOOL_CALL, CallHandle, Calls
from hubbub_client.services.inbox import Inbox
from hubbub_client.transport.connection import HubConnection
from hubbub_client.transport.discovery import HubLocation
from hubbub_client.worker import OnError

if TYPE_CHECKING:
    from hubbub_client.services.admin import Admin
    from hubbub_client.services.approvals import Approvals
    from hubbub_client.services.audit import AuditLog
    from hubbub_client.services.catalog import Catalog
    from hubbub_client.services.events import Events
    from hubbub_client.services.fleet import Fleet
    from hubbub_client.services.hosts import Hosts
    from hubbub_client.services.servers import Servers
    from hubbub_client.services.store import Store
    from hubbub_client.services.tasks import Tasks
    from hubbub_client.services.tokens import Tokens


class Hub:
    """One hub, also after it restarts. Made by `connect`. A part is imported with its first use."""

    def __init__(self, connection: HubConnection) -> None:
        self._connection = connection
        self.inbox = Inbox(connection)
        self.calls = Calls(connection)
        self._handlers = Handlers(self.inbox)

    @property
    def address(self) -> str:
        """Return the address at which the hub was last found."""
        return self._connection.address

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return all addresses of the hub, as last looked up; one, unless it has several members."""
        return self._connection.addresses

    @property
    def connected(self) -> bool:
        """Return whether there is a connection now; without one, the next RPC or an open watch reconnects."""
        return self._connection.connected

    @cached_property
    def servers(self) -> "Servers":
        """The configured servers."""
        from hubbub_client.services.servers import Servers

        return Servers(self._connection)

    @cached_property
    def tasks(self) -> "Tasks":
        """Tasks of the hub and of its servers."""
        from hubbub_client.services.tasks import Tasks

        return Tasks(self._connection)

    @cached_property
    def catalog(self) -> "Catalog":
        """The tools, resources, prompts and skills of the servers."""
        from hubbub_client.services.catalog import Catalog

        return Catalog(self._connection)

    @cached_property
    def events(self) -> "Events":
        """Notifications, log lines and resource updates of the servers, live."""
        from hubbub_client.services.events import Events

        return Events(self._connection)

    @cached_property
    def store(self) -> "Store":
        """The hub's data on disk."""
        from hubbub_client.services.store import Store

        return Store(self._connection)

    @cached_property
    def tokens(self) -> "Tokens":
        """The API tokens, by which callers may use the hub."""
        from hubbub_client.services.tokens import Tokens

        return Tokens(self._connection)

    @cached_property
    def hosts(self) -> "Hosts":
        """The MCP hosts that use the hub as their server."""
        from hubbub_client.services.hosts import Hosts

        return Hosts(self._connection)

    @cached_property
    def admin(self) -> "Admin":
        """The hub itself."""
        from hubbub_client.services.admin import Admin

        return Admin(self._connection)

    @cached_property
    def approvals(self) -> "Approvals":
        """The rules by which calls wait for approval, and the approvals that are remembered."""
        from hubbub_client.services.approvals import Approvals

        return Approvals(self._connection)

    @cached_property
    def fleet(self) -> "Fleet":
        """The members of a hub that has several."""
        from hubbub_client.services.fleet import Fleet

        return Fleet(self._connection)

    @cached_property
    def audit(self) -> "AuditLog":
        """Changes and refusals, with the callers that caused them."""
        from hubbub_client.services.audit import AuditLog

        return AuditLog(self._connection)

    async def call_tool(
        self, server: str, tool: str, args: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> ToolResult:
        """Call a tool (tools/call) and return its result, also one with `isError`.

        Cancelling the wait aborts the call. So does an exception in a callback, which this method raises.
        Raises HubbubError; UpstreamError if the server responded with an error.
        """
        return ToolResult(await self.call(server, TOOL_CALL, _tool_params(tool, args), **options))

    async def call(
        self, server: str, method: str, params: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> Any:
        """Send any request, wait for its end, and return its MCP result as JSON values.

        Cancelling the wait aborts the call. So does an exception in a callback, which this method raises.
        Raises HubbubError; UpstreamError if the server responded with an error.
        """
        return (await self.calls.call(server, method, params, **options)).result

    async def start_tool(
        self, server: str, tool: str, args: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> CallHandle[ToolResult]:
        """Queue a call of a tool and return its handle at once; the call goes on even if this program ends.

        The callbacks run only while the handle's `result` or `wait` is awaited. Raises HubbubError if the hub refuses
        the call.
        """
        return await self.start(server, TOOL_CALL, _tool_params(tool, args), **options)

    async def start(
        self, server: str, method: str, params: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> CallHandle[Any]:
        """Queue any request and return its handle at once; the call goes on even if this program ends.

        The callbacks run only while the handle's `result` or `wait` is awaited. Raises HubbubError if the hub refuses
        the call.
        """
        return await self.calls.start(server, method, params, **options)

    async def read_resource(self, server: str, uri: str, **options: Unpack[CallOptions]) -> dict[str, Any]:
        """Read a resource (resources/read) and return the MCP result. Raises HubbubError, as `call`."""
        return await self.call(server, "resources/read", {"uri": uri}, **options)

    def subscribe(self, server: str, uri: str) -> AsyncGenerator[ResourceUpdate, None]:
        """Yield the contents of a resource now and after each change; closing the iterator unsubscribes."""
        return self.events.resource(server, uri)

    async def get_prompt(
        self, server: str, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallOptions]
    ) -> dict[str, Any]:
        """Get a prompt (prompts/get) and return the MCP result. Raises HubbubError, as `call`."""
        params = {"name": name, "arguments": dict(arguments or {})}
        return await self.call(server, "prompts/get", params, **options)

    async def complete(
        self,
        server: str,
        argument: str,
        value: str,
        *,
        prompt: str | None = None,
        template: str | None = None,
        context: Mapping[str, str] | None = None,
        **options: Unpack[CallOptions],
    ) -> dict[str, Any]:
        """Complete an argument of a `prompt` or of a resource `template` (its uri), and return the MCP result.

        `context` has the arguments that are known already. Raises HubbubError, and ValueError unless either a `prompt`
        or a `template` is given.
        """
        if (prompt is None) == (template is None):
            raise ValueError("give either a prompt or a resource template")
        ref = {"type": "ref/resource", "uri": template} if prompt is None else {"type": "ref/prompt", "name": prompt}
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if context:
            params["context"] = {"arguments": dict(context)}
        return await self.call(server, "completion/complete", params, **options)

    async def set_log_level(self, server: str, level: LogLevel) -> None:
        """Set the level of a server's log messages, up to revision 2025-11-25; the hub repeats it after a reconnect.

        A 2026-07-28 server takes the level with each call instead: `log_level` of `call_tool`.
        """
        await self.call(server, "logging/setLevel", {"level": level})

    # Handlers

    def on_form(self, *, server: str | None = None) -> Callable[[H], H]:
        """Return a decorator: the function answers forms of any call, of one server or of all, while `serve` runs.

        The function gets the claimed request, and may be a coroutine function. It returns the content of the form (a
        mapping), True for the form's defaults, or False to decline. It returns None if it answered through the record,
        or leaves the request to others.

        >>> import asyncio, hubbub_client
        >>> async def main():
        ...     async with hubbub_client.connect(name="robot") as hub:
        ...         @hub.on_form(server="shop")
        ...         async def confirm(request):
        ...             return {"confirm": True} if "receipt" in request.request["message"] else None
        ...         await hub.serve()  # until cancelled
        """
        return self._handlers.on("elicitation_form", server)

    def on_page(self, *, server: str | None = None) -> Callable[[H], H]:
        """As `on_form`, for pages to visit: the function returns True to consent, False to decline."""
        return self._handlers.on("elicitation_url", server)

    def on_sampling(self, *, server: str | None = None) -> Callable[[H], H]:
        """As `on_form`, for samplings: the function returns the assistant's text, or the MCP result (a mapping)."""
        return self._handlers.on("sampling", server)

    def on_roots(self, *, server: str | None = None) -> Callable[[H], H]:
        """As `on_form`, for roots: the function returns the MCP result, `{"roots": [...]}`."""
        return self._handlers.on("roots", server)

    def on_approval(self, *, server: str | None = None) -> Callable[[H], H]:
        """As `on_form`, for calls that wait for approval: the function returns True to approve, False to deny.

        It returns a text to deny with that text as the reason, or a mapping to approve with other arguments: the
        mapping replaces the arguments in `request.approval`. This program needs the permission `approve`.
        """
        return self._handlers.on("approval", server)

    async def serve(self, *, capacity: int = 1, on_error: OnError | None = None) -> None:
        """Answer pending requests with the registered handlers, until cancelled.

        Each handler is one of the hub's workers, with up to `capacity` pending requests at once. The hub assigns each
        request to exactly one worker, of this program or another. An exception in a handler goes to `on_error`, else
        to the log, and its request to other workers. Raises ValueError if no handler is registered, HubbubError as
        `inbox.watch`.
        """
        await self._handlers.serve(capacity=capacity, on_error=on_error)


@asynccontextmanager
async def connect(
    address: str | None = None,
    token: str | None = None,
    data_dir: str | Path | None = None,
    *,
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    name: str | None = None,
    connect_timeout_s: float = 5.0,
    silence_s: float = 15.0,
    patient: bool = True,
) -> AsyncGenerator[Hub, None]:
    """Connect to the hub at `address` (HOST:PORT, https://HOST:PORT or unix:PATH) for an `async with` block.

    A hub of several members has several addresses, separated by commas, or a name for all: dns:///NAME:PORT. The first
    that answers is used until it fails.
    Address and token default to HUBBUB_ADDRESS and HUBBUB_TOKEN, else to `client.json` in `data_dir`, HUBBUB_DATA_DIR
    or the default data directory. Off loopback TLS is used, with or without https://: `ca` is a PEM file of trusted
    authorities, `cert` and `key` are the client certificate; they default to HUBBUB_CA, HUBBUB_CERT and HUBBUB_KEY.
    `name` is recorded as the author of answers and claims. Each RPC waits up to `connect_timeout_s` seconds for a hub;
    if not `patient`, connecting fails at once when no hub listens. A watch that is silent for `silence_s` seconds is
    opened again.
    Raises Unavailable if there is no hub (HUB_UNREACHABLE) or the handshake fails (HANDSHAKE_FAILED), and
    InvalidArgument for an address or files that cannot be used.
    """
    connection = HubConnection(HubLocation(address, token, data_dir, ca, cert, key), name, connect_timeout_s, silence_s)
    try:
        await connection.connected_stubs(patient=patient)
        yield Hub(connection)
    finally:
        await connection.close()


def _tool_params(tool: str, args: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"name": tool, "arguments": dict(args or {})}
