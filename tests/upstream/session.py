"""A hub over real connections, and a person who answers what its servers ask."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from hubbubd import payload
from hubbubd.config import HubSettings, ServerConfig
from hubbubd.core.calls.call_states import Call
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox import forms
from hubbubd.core.inbox.request_states import Delivery, PendingRequest, RequestState
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.errors import FailedPrecondition
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.hub import Hub
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.upstream.connector import McpConnector

from .conftest import LIMIT_S, Pocket

POLL_S = 0.02
CALL_S = 30
"""Limit of a call, which some faults leave nothing else to end it."""

OPTIONS = {
    "connect_timeout_s": LIMIT_S,
    "ping_interval_s": 0,
    "backoff_s": (0.1,),
    "retries": 5,
    "stable_after_s": 0,
    "max_in_flight": 8,
}


async def until(condition: Callable[[], object]) -> None:
    """Waits for a condition."""
    with anyio.fail_after(LIMIT_S):
        while not condition():
            await anyio.sleep(POLL_S)


def ended(call: Call) -> str:
    """`ok`, or why it failed."""
    assert call.state.ended
    assert (call.fault is None) is (call.result is not None)
    return "ok" if call.fault is None else call.fault.code


def text(call: Call) -> str:
    """What a tool returned."""
    assert call.result is not None, call.fault
    return payload.loads(call.result)["content"][0]["text"]


@dataclass
class Session:
    """A hub, the calls made through it and what became of them."""

    hub: Hub
    given: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By the message of a question, the names that it was answered with."""

    async def call(self, server: str, tool: str, limit_s: float = CALL_S, /, **arguments: Any) -> Call:
        """The call of a tool, once it has ended."""
        params = payload.dumps({"name": tool, "arguments": arguments})
        spec = CallSpec(server=server, method="tools/call", params=params, timeout_s=limit_s)
        with anyio.fail_after(2 * LIMIT_S):
            return await self.hub.calls.call(spec, "ada")

    def asked(self, server: str) -> list[PendingRequest]:
        """All that a server asked, oldest first."""
        return self.hub.inbox.select(RequestFilter(server=server))[::-1]

    async def answer_all(self) -> None:
        """Answers whatever is asked, for ever: each question with a name of its own."""
        open_ones = RequestFilter(states=frozenset({RequestState.OPEN}))
        while True:
            for request in self.hub.inbox.select(open_ones):
                asked = payload.loads(request.request)
                names = self.given.setdefault(asked["message"], [])
                names.append(f"{asked['message']} answer {len(names)}")
                fields = asked["requestedSchema"]["properties"].items()
                content = {key: names[-1] if field["type"] == "string" else len(names) for key, field in fields}
                with suppress(FailedPrecondition):  # taken back meanwhile
                    await self.hub.inbox.answer(request.id, forms.Accept(content), "ada", answer_id=None, claim_id=None)
            await anyio.sleep(POLL_S)

    async def connected(self, server: str) -> None:
        """Waits for a server; one that the hub has given up is wanted again."""
        with anyio.fail_after(3 * LIMIT_S):
            while (now := self.hub.servers.get(server).connection).state is not ConnectionState.CONNECTED:
                if now.state is ConnectionState.DISCONNECTED and now.fault is not None:
                    await self.hub.servers.connect(server)
                await anyio.sleep(POLL_S)

    async def settled(self, server: str) -> list[PendingRequest]:
        """All that a server asked, once nothing of it is on its way any more."""
        await until(
            lambda: (
                not any(
                    request.state is RequestState.OPEN or request.delivery is Delivery.PENDING
                    for request in self.asked(server)
                )
            )
        )
        return self.asked(server)


def open_files() -> int:
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


@asynccontextmanager
async def session(servers: Mapping[str, Mapping[str, Any]], directory: Path) -> AsyncIterator[Session]:
    """A hub that is connected to servers for as long as the block; afterwards nothing of it may be left."""
    tasks_before, files_before = len(asyncio.all_tasks()), open_files()
    configured = {
        name: ServerConfig.model_validate({"name": name, **OPTIONS, **options}) for name, options in servers.items()
    }
    store = await SqliteStore.open(":memory:")
    async with Hub.open(store, McpConnector(Pocket()), configured, HubSettings(data_dir=directory)) as hub:
        made = Session(hub)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.answer_all)
            yield made
            tasks.cancel_scope.cancel()
    await store.close()
    with anyio.fail_after(LIMIT_S):
        while len(asyncio.all_tasks()) > tasks_before or open_files() > files_before:
            await anyio.sleep(POLL_S)
