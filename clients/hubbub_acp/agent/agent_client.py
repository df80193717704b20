"""The connection to an agent: starts it, introduces this client, sends requests, ends it; over the SDK of ACP."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from hubbub_acp.agent.agent_process import AgentProcess, ProcessStarter
from hubbub_acp.agent.agent_stream import WITHDRAWN, AgentStream
from hubbub_acp.agent.login_hints import find_login_hint
from hubbub_acp.faults import AgentFault
from hubbub_acp.log import log
from hubbub_acp.options import AcpOptions
from hubbub_acp.plain_text import make_line
from hubbub_acp.sessions.session import AgentInfo
from hubbub_acp.values import as_object

if TYPE_CHECKING:
    from acp.connection import Connection

PROTOCOL: Final = 1
"""The version of ACP that this client speaks."""

INITIALIZE_LIMIT_S: Final = 120.0
"""Seconds for an agent to start: `npx` may install it first."""

REQUEST_LIMIT_S: Final = 60.0
"""Seconds for the response to a request that is no turn, such as to open or load a session."""

AUTH_REQUIRED: Final = -32000
NOT_FOUND: Final = -32002
INVALID_PARAMS: Final = -32602
REQUEST_CANCELLED: Final = -32800
MAX_METHODS: Final = 20

Handler = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any] | None]]
UpdateHandler = Callable[[str, Mapping[str, Any]], None]


class AgentClient:
    """A running agent that has introduced itself. `is_retiring`: it gets no new turns, and ends after the last one."""

    def __init__(self, options: AcpOptions, process: AgentProcess, stream: AgentStream, connection: "Connection"):
        """Only `launch` calls this. `info` has the configured name until the agent has introduced itself."""
        self._options = options
        self._process = process
        self._stream = stream
        self._connection = connection
        self.info = AgentInfo(options.name, options.name, "")
        self.capabilities: Mapping[str, Any] = {}
        self.login_methods: Sequence[Mapping[str, Any]] = ()
        self.is_retiring = False
        self.turns = 0  # under way in this process
        self._stopping: asyncio.Task[None] | None = None

    @classmethod
    async def launch(
        cls,
        options: AcpOptions,
        start_agent: ProcessStarter,
        handler: Handler,
        on_update: UpdateHandler,
        on_loss: Callable[[bool], None],
    ) -> "AgentClient":
        """Start an agent, introduce this client and log in where the options say so; return the client.

        `handler` serves the agent's requests, `on_update` gets its session updates. `on_loss` is called when a message
        could not be read, with True for a request, which is refused then. Raises AgentFault.
        """
        process = await start_agent(options.command)
        try:
            # In a thread, while the agent starts: the SDK takes half a second to make its schemas.
            sdk = await asyncio.to_thread(import_module, "acp.connection")
        except BaseException:
            await asyncio.shield(process.stop())
            raise
        stream = AgentStream(process, on_update, on_loss)
        client = cls(options, process, stream, sdk.Connection(_make_handler(handler), stream))
        try:
            await client._initialize()
            if options.login is not None:
                await client._log_in(options.login)
        except BaseException:
            await asyncio.shield(client.close())
            raise
        return client

    @property
    def is_alive(self) -> bool:
        """Whether the agent reads and writes."""
        return self._stream.is_open and self._stopping is None

    def has_capability(self, *path: str) -> bool:
        """Return whether the agent has declared the capability at a path of keys; null and false stand for no."""
        found: Any = self.capabilities
        for key in path:
            found = cast("dict[str, Any]", found).get(key) if isinstance(found, dict) else None
        return found is not None and found is not False

    @property
    def can_load(self) -> bool:
        """Whether the agent can go on in a session that another process of it had."""
        return self.has_capability("loadSession") or self.has_capability("sessionCapabilities", "resume")

    async def request(self, method: str, params: Mapping[str, Any], limit_s: float | None = REQUEST_LIMIT_S) -> Any:
        """Send a request and return its result. Wait `limit_s` seconds at most; None sets no limit.

        Raises AgentFault if there is no answer by then, if the agent has ended, or if it refuses.
        """
        from acp.exceptions import RequestError

        try:
            async with asyncio.timeout(limit_s):
                return await self._connection.send_request(method, params)
        except TimeoutError:
            raise await self._make_silent_fault(method, limit_s or 0) from None
        except ConnectionError:
            raise await self._make_end_fault() from None
        except RequestError as exc:
            raise self._make_refusal(method, exc.code, str(exc), exc.data) from None

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification; it is dropped if the agent has ended."""
        with suppress(ConnectionError):
            await self._connection.send_notification(method, params)

    async def close(self) -> None:
        """End the agent with all that it started, within seconds; further calls wait for the first one."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        """Close the connection, and then end the process."""
        await self._connection.close()
        await self._process.stop()

    async def _initialize(self) -> None:
        """Introduce this client, and set the agent's name, capabilities and log-in methods. Raises AgentFault."""
        fs = {"readTextFile": self._options.root is not None, "writeTextFile": self._options.root is not None}
        params = {
            "protocolVersion": PROTOCOL,
            "clientCapabilities": {"fs": fs, "terminal": self._options.root is not None},
            "clientInfo": {"name": "hubbub", "title": "Hubbub", "version": self._options.version},
        }
        result = as_object(await self.request("initialize", params, INITIALIZE_LIMIT_S))
        version = result.get("protocolVersion")
        if version != PROTOCOL:
            raise AgentFault(
                "AGENT_VERSION",
                f"{self._options.command_line} speaks version {make_line(str(version), 20)} of ACP, and this program "
                f"version {PROTOCOL}: install an agent that speaks it",
            )
        info = as_object(result.get("agentInfo"))
        name = make_line(info.get("name"), 100) or self._options.name
        title = make_line(info.get("title"), 100) or name
        self.info = AgentInfo(name, title, make_line(info.get("version"), 50))
        self.capabilities = as_object(result.get("agentCapabilities"))
        methods = result.get("authMethods")
        self.login_methods = [
            cast("dict[str, Any]", each)
            for each in (cast("list[Any]", methods)[:MAX_METHODS] if isinstance(methods, list) else [])
            if isinstance(each, dict)
        ]

    async def _log_in(self, method: str) -> None:
        """Log in by one of the agent's methods. Raises AgentFault."""
        method_ids = [str(each.get("id")) for each in self.login_methods]
        if method_ids and method not in method_ids:  # an agent that lists none may have some
            message = f"the agent has no log-in {method!r}; it has {', '.join(map(repr, method_ids))}: correct --login"
            raise AgentFault("LOGIN_UNKNOWN", message, methods=self._list_methods())
        await self.request("authenticate", {"methodId": method})

    def _list_methods(self) -> list[dict[str, str]]:
        """Return the agent's log-in methods, with short texts."""
        keys = ("id", "name", "description", "type")
        return [{key: make_line(each.get(key), 500) for key in keys if each.get(key)} for each in self.login_methods]

    async def _make_silent_fault(self, method: str, limit_s: float) -> AgentFault:
        """Return the fault for an agent that did not answer a request in time."""
        stray = f"; it wrote {self._stream.stray_count} lines that are no messages of ACP, the first one: "
        hint = f"{stray}{self._stream.first_stray}" if self._stream.stray_count else ""
        tail = self._process.read_stderr_tail()
        return AgentFault(
            "AGENT_SILENT",
            f"{self._options.command_line} did not answer {method} in {limit_s:g} s{hint}"
            f"{f'; on stderr: {tail}' if tail else ''}. Is it the command that starts the agent with ACP?",
        )

    async def _make_end_fault(self) -> AgentFault:
        """Return the fault for an agent that has ended; wait a moment for its exit code and last lines."""
        if self._stopping is not None:
            return AgentFault("AGENT_ENDED", f"{self._options.command_line} was ended")
        return AgentFault("AGENT_ENDED", f"{self._options.command_line} {await self._process.describe_end()}")

    def _make_refusal(self, method: str, code: int, text: str, data: Any) -> AgentFault:
        """Return the fault for a request that the agent refused."""
        text = make_line(text, 1000) or "no reason"
        if code == AUTH_REQUIRED:
            return self._make_login_fault(text)
        detail = as_object(data).get("details") or as_object(data).get("message")
        more = f": {make_line(detail, 1000)}" if isinstance(detail, str) and detail not in text else ""
        return AgentFault(
            "AGENT_REFUSED", f"{self.info.title} refused {method}: {text}{more}", rpcCode=code, method=method
        )

    def _make_login_fault(self, text: str) -> AgentFault:
        """Return the fault for an agent that needs a log-in, with how a person logs in to it."""
        methods = self._list_methods()
        choices = [f"{each.get('id', '')} ({each.get('description') or each.get('name', '')})" for each in methods]
        advice = (
            f" It can log in by: {'; '.join(choices)}. `--login ID` chooses one that asks nobody." if choices else ""
        )
        return AgentFault(
            "AGENT_LOGIN_REQUIRED",
            f"{self.info.title} needs a log-in ({text}). As the hub's user: {find_login_hint(self._options.command)}; "
            f"variables belong into the server's `env`.{advice}",
            methods=methods,
        )


def _make_handler(handler: Handler) -> Any:
    """Return a handler for the SDK: it has `handler` serve each request, and turns failures into JSON-RPC errors."""
    from acp.exceptions import RequestError

    async def handle(method: str, params: Any, is_notification: bool) -> dict[str, Any] | None:
        """Serve a request. Raises RequestError if it fails, or if the agent withdraws it, which cancels it here."""
        arguments = as_object(params)
        withdrawn = arguments.pop(WITHDRAWN)  # from AgentStream: done once the agent takes the request back
        serving = asyncio.ensure_future(handler(method, arguments))
        try:
            await asyncio.wait({serving, withdrawn}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                raise RequestError(REQUEST_CANCELLED, "Request cancelled")
            return serving.result()
        except AgentFault as exc:
            if exc.code == "METHOD_UNKNOWN":
                raise RequestError.method_not_found(method) from None
            raise RequestError(
                NOT_FOUND if exc.code == "NOT_FOUND" else INVALID_PARAMS, exc.message, exc.details or None
            ) from None
        except RequestError:
            raise
        except Exception as exc:  # noqa: BLE001 - one request of the agent costs no other
            log(f"hubbub acp: {method} failed: {exc!r}")
            raise RequestError.internal_error({"details": "the client failed"}) from None
        finally:
            serving.cancel()

    return handle
