"""A hub whose every answer a test writes down: the real services over real gRPC, without a daemon behind them."""

import asyncio
import contextlib
import io
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from hubbub.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    approval_pb2,
    approval_pb2_grpc,
    call_pb2,
    call_pb2_grpc,
    catalog_pb2,
    catalog_pb2_grpc,
    common_pb2,
    event_pb2,
    event_pb2_grpc,
    fleet_pb2,
    fleet_pb2_grpc,
    inbox_pb2,
    inbox_pb2_grpc,
    login_pb2,
    login_pb2_grpc,
    mcp_pb2,
    mcp_pb2_grpc,
    server_pb2,
    server_pb2_grpc,
    task_pb2,
    task_pb2_grpc,
)
from hubbub_cli import run_command_line
from hubbub_frontend.shell_commands import set_hub_prefix

from .. import forks
from .call_stream import done

SERVICES = (
    (admin_pb2, admin_pb2_grpc, "AdminService"),
    (approval_pb2, approval_pb2_grpc, "ApprovalService"),
    (call_pb2, call_pb2_grpc, "CallService"),
    (catalog_pb2, catalog_pb2_grpc, "CatalogService"),
    (event_pb2, event_pb2_grpc, "EventService"),
    (fleet_pb2, fleet_pb2_grpc, "FleetService"),
    (inbox_pb2, inbox_pb2_grpc, "InboxService"),
    (login_pb2, login_pb2_grpc, "LoginService"),
    (mcp_pb2, mcp_pb2_grpc, "McpService"),
    (server_pb2, server_pb2_grpc, "ServerService"),
    (task_pb2, task_pb2_grpc, "TaskService"),
)


@pytest.fixture(autouse=True)
def commands_of_no_hub() -> Iterator[None]:
    """What a command, run in this process, said of its hub is forgotten."""
    yield
    set_hub_prefix("hubbub")


@dataclass
class Refusal(Exception):
    """A status with its details."""

    code: str
    reason: str
    message: str = "no"
    metadata: dict[str, str] = field(default_factory=dict)
    violations: tuple[tuple[str, str], ...] = ()
    retry_after_s: float | None = None
    domain: str = "hubbub"

    def status(self) -> Any:
        return rpc_status.to_status(self._status())

    def document(self) -> bytes:
        """The status as a call on a stream gets it."""
        return self._status().SerializeToString()

    def _status(self) -> status_pb2.Status:
        parts = [error_details_pb2.ErrorInfo(reason=self.reason, domain=self.domain, metadata=self.metadata)]
        if self.violations:
            each = error_details_pb2.BadRequest.FieldViolation
            parts.append(
                error_details_pb2.BadRequest(
                    field_violations=[each(field=f, description=d) for f, d in self.violations]
                )
            )
        if self.retry_after_s is not None:
            retry = error_details_pb2.RetryInfo()
            retry.retry_delay.FromMilliseconds(round(self.retry_after_s * 1000))
            parts.append(retry)
        parts.append(
            error_details_pb2.Help(links=[error_details_pb2.Help.Link(url=f"https://help.test/{self.reason}")])
        )
        details = []
        for part in parts:
            details.append(AnyMessage())
            details[-1].Pack(part)
        code = code_pb2.Code.Value(self.code)
        return status_pb2.Status(code=code, message=self.message, details=details)


def staying(*steps: Any) -> Callable[[Any], AsyncIterator[Any]]:
    """A stream of a scripted hub: these steps, and then nothing for as long as somebody listens."""

    async def stream(_: Any) -> AsyncIterator[Any]:
        for step in steps:
            yield step
        await anyio.sleep_forever()

    return stream


def told(response: Any, *records: Any, then: Iterable[Any] = ()) -> Callable[[Any], AsyncIterator[Any]]:
    """A watch whose snapshot has these records, with the steps that come after it."""
    snapshot = (response(upsert=each) for each in records)
    return staying(*snapshot, response(synced=common_pb2.WatchSynced()), *then)


class ScriptedHub:
    """`replies[RPC]` gives the response to a request, `streams[RPC]` the responses of a watch.

    A watch that has none is one that the hub does not know. Else the library would take the error for one that passes.
    """

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.token = "secret"
        self.port = 0
        self.replies: dict[str, Callable[[Any], Any]] = {}
        self.streams: dict[str, Callable[[Any], AsyncIterator[Any]]] = {}
        self.seen: list[tuple[str, Any, dict[str, str]]] = []
        self.also: set[str] = set()  # tokens that it takes, too
        self._server: grpc.aio.Server | None = None

    def requests(self, method: str) -> list[Any]:
        return [request for name, request, _ in self.seen if name == method]

    def carry(self, *, max_calls: int = 100) -> list[Any]:
        """Have calls over streams, too: each is answered as by CallMethod. Return what comes on the streams.

        Without this the hub is an older one, which has calls as RPCs of their own only.
        """
        came: list[Any] = []

        async def stream(steps: AsyncIterator[Any]) -> AsyncIterator[Any]:
            said: asyncio.Queue[Any] = asyncio.Queue()
            calls: dict[int, asyncio.Task[None]] = {}
            ready = call_pb2.StreamCallsResponse.Ready(max_calls=max_calls, max_request_bytes=1024 * 1024)
            step_of, all_of = call_pb2.StreamCallsResponse.Step, call_pb2.StreamCallsResponse

            async def answer(start: Any) -> None:
                try:
                    response = self.replies["CallMethod"](start.request)
                    completed = await response if hasattr(response, "__await__") else response
                    said.put_nowait(step_of(id=start.id, completed=completed))
                except Refusal as refusal:
                    said.put_nowait(step_of(id=start.id, failed=refusal.document()))

            async def listen() -> None:
                async for step in (step async for message in steps for step in message.steps):
                    came.append(step)
                    if step.HasField("start"):
                        calls[step.start.id] = asyncio.create_task(answer(step.start))
                    else:
                        calls[step.cancel.id].cancel()

            listening = asyncio.create_task(listen())
            try:
                yield all_of(steps=[step_of(ready=ready)])
                while True:
                    yield all_of(steps=[await said.get()])
            finally:
                for each in (listening, *calls.values()):
                    each.cancel()

        self.streams["StreamCalls"] = stream
        return came

    async def start(self, port: int = 0, *, announced: bool = True) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        for messages, services, name in SERVICES:
            methods = messages.DESCRIPTOR.services_by_name[name].methods
            scripted = {
                each.name: self._stream(each.name) if each.server_streaming else self._unary(each.name)
                for each in methods
            }
            servicer = type(name, (getattr(services, f"{name}Servicer"),), scripted)()
            getattr(services, f"add_{name}Servicer_to_server")(servicer, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        await self._server.start()
        if announced:
            self._announce()

    def _announce(self) -> None:
        client = {"address": self.address, "token": self.token}
        (self.data_dir / "client.json").write_text(json.dumps(client))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)

    def _unary(self, name: str) -> Any:
        async def method(_: Any, request: Any, context: Any) -> Any:
            await self._admit(name, request, context)
            try:
                response = self.replies[name](request)
                return await response if hasattr(response, "__await__") else response
            except Refusal as refusal:
                return await context.abort_with_status(refusal.status())

        return method

    def _stream(self, name: str) -> Any:
        async def method(_: Any, request: Any, context: Any) -> Any:
            if name == "StreamCalls" and name not in self.streams:  # an older hub does not even look who calls
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
            await self._admit(name, request, context)
            try:
                responses = self.streams[name](request)
            except KeyError:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
            try:
                async for response in responses:
                    yield response
            except Refusal as refusal:
                await context.abort_with_status(refusal.status())

        return method

    async def _admit(self, name: str, request: Any, context: Any) -> None:
        metadata = dict(context.invocation_metadata())
        self.seen.append((name, request, metadata))
        if str(metadata.get("authorization")).removeprefix("Bearer ") not in {self.token, *self.also}:
            await context.abort_with_status(
                Refusal("UNAUTHENTICATED", "TOKEN_INVALID", "this is no bearer token that the hub knows").status()
            )


def _pass_over_late_events() -> None:
    """gRPC gives the events of all loops of a process to whichever is awake.

    One for the loop of the library without async that comes when that has ended is an error in the loop of the tests,
    which no program with one loop has.
    """
    loop = asyncio.get_running_loop()
    others = loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        late = str(context.get("exception")) == "Event loop is closed" and "_handle_events" in str(context["message"])
        if late:
            return
        if others is not None:
            others(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


@pytest.fixture
async def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedHub]:
    """A running scripted hub; its client.json is in `hub.data_dir`."""
    for name in ("HUBBUB_ADDRESS", "HUBBUB_TOKEN", "HUBBUB_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    _pass_over_late_events()
    scripted = ScriptedHub(tmp_path)
    await scripted.start()
    yield scripted
    await scripted.stop()


@pytest.fixture
def came(hub: Any) -> list[Any]:
    """What comes on streams of a hub that answers every call at once."""
    hub.replies["CallMethod"] = done
    came: list[Any] = hub.carry()
    return came


@pytest.fixture
async def two(hub: ScriptedHub, tmp_path: Path) -> AsyncIterator[tuple[ScriptedHub, ScriptedHub]]:
    """Two hubs, which a test has be members of one."""
    (tmp_path / "other").mkdir()
    other = ScriptedHub(tmp_path / "other")
    await other.start()
    yield hub, other
    await other.stop()


@pytest.fixture
def refusal() -> type[Refusal]:
    """What a reply raises to refuse."""
    return Refusal


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Any:
        return json.loads(self.err.splitlines()[-1])


HUBBUB = str(Path(sys.executable).with_name("hubbub"))


@pytest.fixture
def hubbub(hub: ScriptedHub) -> Callable[..., Any]:
    """Runs the command line against the scripted hub."""

    async def run(*words: str, json: bool = True, env: dict[str, str] | None = None) -> Ran:
        options = ["--data-dir", str(hub.data_dir), *(["--json"] if json else [])]
        with anyio.fail_after(60):
            done = await forks.run([HUBBUB, *options, *words], env=os.environ | (env or {}))
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def typed(hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a command line against the scripted hub in this process, without a terminal, as a person without `--json`.

    It reads nothing, and neither signals nor the end of a process belong to it: those have `hubbub`.
    """

    async def run(*words: str) -> Ran:
        out, err = io.StringIO(), io.StringIO()

        def command() -> int:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                return run_command_line([*words])

        monkeypatch.setenv("HUBBUB_DATA_DIR", str(hub.data_dir))
        with anyio.fail_after(60):
            status = await anyio.to_thread.run_sync(command)
        return Ran(status, out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def hubbub_process(hub: ScriptedHub) -> Callable[..., Any]:
    """Starts the command line against the scripted hub: a process with pipes."""

    async def start(*words: str, options: Sequence[str] = ("--json",)) -> anyio.abc.Process:
        command = [HUBBUB, "--data-dir", str(hub.data_dir), *options, *words]
        return await forks.start(command)

    return start
