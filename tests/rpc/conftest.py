"""A hub that is served, and a caller with its token."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2 as details_pb2
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from hubbub.v1 import inbox_pb2, server_pb2
from hubbub_client.data.specs import ServerSpec, to_message
from hubbubd.config import HubSettings, ServerConfig
from hubbubd.config.policy.commands import REST_PATTERN, AllowedCommand
from hubbubd.rpc.auth.gate import Gate
from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.inbox import work
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.store.vault.file import TokenFile
from hubbubd.upstream.connector import McpConnector

TOKEN = "right-token"
ANY_PYTHON = AllowedCommand(command=sys.executable, args=(REST_PATTERN,))
LIMIT_S = 60
"""Bound of every wait of these tests."""


def spec_of(**options: Any) -> server_pb2.ServerSpec:
    """A spec with these options, named as in a configuration file."""
    return to_message(ServerSpec(**options))


def gate(hub: Hub) -> Gate:
    """Lets in a client that has the hub's token, or one that the hub made."""
    made = Gate(TOKEN, hub.clock, [hub.tokens])
    hub.tokens.on_revoked(made.end_credential)
    return made


@dataclass(frozen=True)
class Refusal:
    """A status with its details, as a caller sees it."""

    code: grpc.StatusCode
    message: str
    reason: str
    metadata: dict[str, str]
    violations: dict[str, str]
    details: dict[type[Message], Message]


def explain(error: grpc.aio.AioRpcError) -> Refusal:
    """The details of an error; fails when it has no ErrorInfo of the hub."""
    status = rpc_status.from_call(error)
    assert status is not None, f"no details: {error.code()} {error.details()}"
    return refusal(error.code(), status)


@contextmanager
def refusing(reason: str) -> Iterator[None]:
    """Passes if an RPC inside is refused for this reason."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        yield
    assert explain(caught.value).reason == reason


def refusal(code: grpc.StatusCode, status: Status) -> Refusal:
    """The details of a status; fails when it has no ErrorInfo of the hub."""
    details = dict(_unpacked(status))
    about = details[details_pb2.ErrorInfo]
    assert about.domain == "hubbub"
    wrong = details.get(details_pb2.BadRequest, details_pb2.BadRequest()).field_violations
    violations = {violation.field: violation.description for violation in wrong}
    return Refusal(code, status.message, about.reason, dict(about.metadata), violations, details)


def _unpacked(status: Status) -> list[tuple[type[Message], Any]]:
    found: list[tuple[type[Message], Any]] = []
    for kind in (details_pb2.ErrorInfo, details_pb2.RetryInfo, details_pb2.BadRequest, details_pb2.Help):
        for packed in status.details:
            message = kind()
            if packed.Unpack(message):
                found.append((kind, message))
    return found


@asynccontextmanager
async def settled() -> AsyncIterator[None]:
    """Leaves only when all that was begun inside has ended.

    gRPC learns of the end of a call a moment after its server has stopped, through a queue that all event loops of
    a process share: a loop closed before that would fail the next test.
    """
    before = asyncio.all_tasks()
    yield
    with anyio.fail_after(LIMIT_S):
        while any(not _drives_tests(task) for task in asyncio.all_tasks() - before):
            await anyio.sleep(0.001)


def _drives_tests(task: asyncio.Task[Any]) -> bool:
    return getattr(task.get_coro(), "__qualname__", "").startswith("TestRunner.")


@dataclass
class Caller:
    """Calls any method of the API by its descriptor, with the right token unless told otherwise."""

    channel: grpc.aio.Channel
    metadata: tuple[tuple[str, str | bytes], ...] = (("authorization", f"Bearer {TOKEN}"),)

    async def raw(self, method: MethodDescriptor, request: bytes) -> Message:
        """The response, or the first one of a stream. Raises AioRpcError."""
        path = f"/{method.containing_service.full_name}/{method.name}"
        parse = GetMessageClass(method.output_type).FromString
        async with asyncio.timeout(
            LIMIT_S
        ):  # not anyio's: gRPC raises a CancelledError of its own, which that passes on
            if method.server_streaming:
                stream = self.channel.unary_stream(path, response_deserializer=parse)(request, metadata=self.metadata)
                try:
                    async for response in stream:
                        if method.name != "StreamCalls" or not response.steps[0].HasField("ready"):
                            return response
                    raise AssertionError(f"{path} ended without a word")
                finally:
                    stream.cancel()
            return await self.channel.unary_unary(path, response_deserializer=parse)(request, metadata=self.metadata)

    async def refused(self, method: MethodDescriptor, request: Message | bytes) -> Refusal:
        """Why the hub refuses this; fails when it does not."""
        raw = request if isinstance(request, bytes) else request.SerializeToString()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.raw(method, raw)
        return explain(caught.value)

    async def end(
        self, method: MethodDescriptor, request: Message, begun: Callable[[], object] = lambda: None
    ) -> Refusal:
        """How the hub ends a stream of responses; `begun` is called after the first. Fails when that does not come."""
        path = f"/{method.containing_service.full_name}/{method.name}"
        stream = self.channel.unary_stream(path)(request.SerializeToString(), metadata=self.metadata)
        try:
            async with asyncio.timeout(LIMIT_S):
                assert await stream.read() is not grpc.aio.EOF, f"{path} ended without a word"
                begun()
                while await stream.read() is not grpc.aio.EOF:
                    pass
        except grpc.aio.AioRpcError as error:
            return explain(error)
        finally:
            stream.cancel()
        raise AssertionError(f"{path} ended without an error")

    async def until_refused(self, method: MethodDescriptor, request: Message) -> Refusal:
        """As `refused`, of the first of these that is: a rate lets one more in now and then, where they take long."""
        with anyio.fail_after(LIMIT_S):
            while True:
                try:
                    await self(method, request)
                except grpc.aio.AioRpcError as error:
                    return explain(error)

    async def __call__(self, method: MethodDescriptor, request: Message) -> Any:
        """The response."""
        return await self.raw(method, request.SerializeToString())


def begin_work(channel: grpc.aio.Channel, metadata: Any) -> Any:
    """A worker's stream."""
    method = channel.stream_stream(
        "/hubbub.v1.InboxService/Work",
        request_serializer=inbox_pb2.WorkRequest.SerializeToString,
        response_deserializer=inbox_pb2.WorkResponse.FromString,
    )
    return method(metadata=metadata)


@asynccontextmanager
async def opened(directory: Path, **settings: Any) -> AsyncIterator[Hub]:
    """A hub in memory. It trusts nobody, the owner included, so that all are held to its lists."""
    store = await SqliteStore.open(":memory:")
    away = ServerConfig(name="away", transport="http", url="http://127.0.0.1:9/mcp")
    lists = {"allow_commands": (ANY_PYTHON,), "allow_hosts": ("127.0.0.1",), "trust_local": False}
    given = HubSettings.model_validate({"data_dir": directory, **lists, **settings})
    async with settled(), Hub.open(store, McpConnector(TokenFile.open(directory)), {"away": away}, given) as hub:
        yield hub
    await store.close()


def _served(hub: Hub) -> AbstractAsyncContextManager[str]:
    return serve(hub, listen="127.0.0.1:0", gate=gate(hub), max_message_bytes=1024 * 1024, grace_s=2)


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    """A hub in memory that knows one server, which nobody has started."""
    async with opened(tmp_path) as hub:
        yield hub


@pytest.fixture
async def address(hub: Hub) -> AsyncIterator[str]:
    """Where that hub is served."""
    async with _served(hub) as address:
        yield address


@pytest.fixture
async def api(address: str) -> AsyncIterator[Caller]:
    """A caller of that hub."""
    async with grpc.aio.insecure_channel(address) as channel:
        yield Caller(channel)


@pytest.fixture(scope="module")
async def shared_hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    """As `hub`, for all tests of a module: none of them changes it."""
    async with opened(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


@pytest.fixture(scope="module")
async def shared_address(shared_hub: Hub) -> AsyncIterator[str]:
    """Where that hub is served."""
    async with _served(shared_hub) as address:
        yield address


@pytest.fixture(scope="module")
async def shared_api(shared_address: str) -> AsyncIterator[Caller]:
    """A caller of that hub."""
    async with grpc.aio.insecure_channel(shared_address) as channel:
        yield Caller(channel)


@pytest.fixture
def lively(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's stream that is quiet shows sooner that the hub is alive."""
    monkeypatch.setattr(work, "BOOKMARK_S", 0.1)


async def until(condition: Callable[[], object]) -> None:
    """Waits for a condition."""
    with anyio.fail_after(LIMIT_S):
        while not condition():
            await anyio.sleep(0.005)
