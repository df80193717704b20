"""The library and the hub together, over one stream of calls."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

import hubbub_client
from hubbubd.core.audit import AuditFilter
from hubbubd.core.inbox.request_states import RequestState
from hubbubd.runtime.hub import Hub

from ..upstream.conftest import scripted
from .conftest import LIMIT_S, TOKEN, until
from .test_call_stream import good, under_way
from .test_call_stream_answers import ask

__all__ = ["good", "scripted"]


async def connected(hub: Hub, client: hubbub_client.Hub, principal: str = "local") -> None:
    """Calls until the hub has a stream of this principal, and the library uses it."""
    with anyio.fail_after(LIMIT_S):
        while not hub.quotas.call_streams.count(principal):
            await client.call_tool("good", "any")
        await client.call_tool("good", "any")


@pytest.fixture
async def client(hub: Hub, address: str, good: str) -> AsyncIterator[hubbub_client.Hub]:
    """A client whose calls go over a stream."""
    async with hubbub_client.connect(address, TOKEN) as opened:
        await connected(hub, opened)
        yield opened


async def asked(hub: Hub, client: hubbub_client.Hub, *ids: str, **callbacks: Any) -> None:
    """A call that is asked all this at once, and that goes on until it is all answered."""
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: client.call("away", "tools/list", call_id="mine", **callbacks))
        await under_way(hub, 1)
        for id_ in ids:
            await ask(hub, id_)
        await until(lambda: all(hub.inbox.get(id_).state is RequestState.ANSWERED for id_ in ids))
        group.cancel_scope.cancel()


def actions(hub: Hub) -> set[str]:
    """The RPCs of the audit log."""
    return {entry.action for entry in hub.audit.select(AuditFilter())}


async def test_callbacks_answer_over_the_stream_one_after_the_other(hub: Hub, client: hubbub_client.Hub) -> None:
    under_way_ = 0

    async def name(request: Any) -> dict[str, str]:
        nonlocal under_way_
        under_way_ += 1
        assert under_way_ == 1
        await anyio.wait_all_tasks_blocked()
        under_way_ -= 1
        return {"name": request.id}

    await asked(hub, client, "first", "second", on_form=name)
    assert [hub.inbox.get(id_).answered_by for id_ in ("first", "second")] == ["local"] * 2
    assert "Work" not in actions(hub)
    await until(lambda: not hub.quotas.streams.count("local"))


async def test_what_a_callback_leaves_to_others_is_theirs(hub: Hub, client: hubbub_client.Hub) -> None:
    left: list[str] = []

    def leave(request: Any) -> None:
        left.append(request.id)

    async with anyio.create_task_group() as group:
        group.start_soon(lambda: client.call("away", "tools/list", call_id="mine", on_form=leave))
        await under_way(hub, 1)
        await ask(hub, "req_1")
        await until(lambda: bool(left) and hub.inbox.get("req_1").claim is None)
        await client.inbox.answer("req_1", decline=True)
        group.cancel_scope.cancel()
    assert left == ["req_1"]


async def test_a_callback_is_cancelled_once_its_request_is_given_back(hub: Hub, client: hubbub_client.Hub) -> None:
    claims: list[str] = []
    ended = anyio.Event()

    async def think(request: Any) -> None:
        claims.append(request.claim.id)
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(lambda: client.call("away", "tools/list", call_id="mine", on_form=think))
        await under_way(hub, 1)
        await ask(hub, "req_1")
        await until(lambda: bool(claims))
        await client.inbox.release("req_1", claims[0])
        with anyio.fail_after(LIMIT_S):
            await ended.wait()
        assert not hub.calls.get("mine").state.ended
        group.cancel_scope.cancel()


async def test_a_caller_that_wants_news_as_well_needs_no_worker_for_its_callbacks(
    hub: Hub, client: hubbub_client.Hub
) -> None:
    await asked(hub, client, "req_1", on_form=lambda _: True, on_progress=lambda _: None)
    assert "Work" not in actions(hub)
