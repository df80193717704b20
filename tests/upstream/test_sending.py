"""In which order messages go to a server over HTTP, where each is a request of its own."""

from collections.abc import AsyncIterator, Mapping

import anyio
import pytest
from anyio.lowlevel import checkpoint
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from hubbubd.errors import Fault
from hubbubd.upstream.http.streams.write_stream import MAX_ANSWERS, HttpWriteStream

from .conftest import LIMIT_S


class Slow:
    """A server that takes a message when it is asked to."""

    def __init__(self) -> None:
        self.arrived: list[str] = []
        self.lost: list[Fault] = []
        self._taken: dict[str, anyio.Event] = {}
        self.sending = HttpWriteStream(self._post, self.lost.append)

    async def _post(self, message: JSONRPCMessage, headers: Mapping[str, str], content: bytes) -> None:
        name = message.method if isinstance(message, JSONRPCNotification | JSONRPCRequest) else "answer"
        self.arrived.append(name)
        await self._taken.setdefault(name, anyio.Event()).wait()

    def take(self, name: str) -> None:
        """Takes all of these."""
        self._taken.setdefault(name, anyio.Event()).set()

    async def notify(self, method: str) -> None:
        """Sends a notification."""
        await self.sending.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=method)))

    async def ask(self, method: str) -> None:
        """Sends a request."""
        await self.sending.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method=method)))

    async def answer(self) -> None:
        """Sends an answer."""
        await self.sending.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=1, result={})))

    async def has(self, *names: str) -> None:
        """Returns once exactly these have arrived."""
        with anyio.fail_after(LIMIT_S):
            while len(self.arrived) < len(names):
                await checkpoint()
        for _ in range(10):
            await checkpoint()
        assert self.arrived == [*names]


@pytest.fixture
async def server() -> AsyncIterator[Slow]:
    slow = Slow()
    yield slow
    await slow.sending.end()
    assert slow.lost == []


async def test_nothing_overtakes_the_first_notification(server: Slow) -> None:
    async with anyio.create_task_group() as tasks:
        await server.notify("notifications/initialized")
        tasks.start_soon(server.ask, "tools/call")
        await server.has("notifications/initialized")
        server.take("notifications/initialized")
        await server.has("notifications/initialized", "tools/call")


async def test_later_notifications_go_in_order_and_after_the_answers_before_them(server: Slow) -> None:
    server.take("first")
    await server.notify("first")
    async with anyio.create_task_group() as tasks:
        await server.answer()
        await server.notify("second")
        tasks.start_soon(server.notify, "third")
        await server.has("first", "answer")
        server.take("answer")
        await server.has("first", "answer", "second")
        server.take("second")
        await server.has("first", "answer", "second", "third")


async def test_neither_a_request_nor_a_cancellation_waits_for_an_answer_to_be_taken(server: Slow) -> None:
    server.take("first")
    await server.notify("first")
    await server.answer()
    await server.notify("second")
    await server.ask("tools/call")
    await server.notify("notifications/cancelled")
    await server.has("first", "answer", "tools/call", "notifications/cancelled")


async def test_a_server_that_takes_no_answers_gets_no_more_of_them(server: Slow) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(MAX_ANSWERS + 1):
            tasks.start_soon(server.answer)
        await server.has(*["answer"] * MAX_ANSWERS)
        server.take("answer")
        await server.has(*["answer"] * (MAX_ANSWERS + 1))


async def test_a_fault_of_the_hubs_own_ends_the_connection_and_is_told(server: Slow) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    lost: list[Fault] = []
    sending = HttpWriteStream(fail, lost.append)
    await sending.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")))
    while not lost:
        await checkpoint()
    assert lost[0].code == "TRANSPORT_ERROR"
    await sending.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await sending.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=2, method="ping")))
