"""What a request of a host has made is freed by its references alone: a garbage collection stops all hosts."""

import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from hubbub_http.connection import HttpConnection
from hubbubd.downstream.calls.host_call import CallObserver, HostCall
from hubbubd.downstream.hosts.host import HostRequest
from hubbubd.downstream.questions.question_requests import QuestionRequests

from ..runtime.conftest import FORM
from ..runtime.peer import Outcome, Sent
from .conftest import LIMIT_S
from .mcp_host import OLD, Host, Stage, stage, tool
from .test_mcp_processes import FORMS, Process

MADE = (HostRequest, HostCall, CallObserver, QuestionRequests, HttpConnection)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """uvloop, as the hub has it: the loop of asyncio keeps timers that were cancelled."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Stage]:
    """A hub whose hosts answer by themselves, and are believed."""
    async with stage(tmp_path, mcp_profiles={"default": {"unattended_s": 0}}) as made_:
        yield made_


async def asks(sent: Sent) -> Outcome:
    """A server that asks a question in each call."""
    await sent.ask("elicitation/create", FORM, on_wire=True).answered()
    return {"content": []}


async def call_without_session(made: Stage) -> None:
    """A call of 2026-07-28."""
    assert "result" in (await made.host().new(tool(1))).json()


async def call_in_session(made: Stage) -> None:
    """A call of 2025-11-25."""
    assert "result" in (await (await made.host().begin()).post(tool(1))).json()


async def answer_by_round(made: Stage) -> None:
    """A call of 2026-07-28 whose question the host answers by a further round."""
    made.peers["one"].behaviour = asks
    assert await Process(made.host(), FORMS).is_asked()


async def answer_by_response(made: Stage) -> None:
    """A call of 2025-11-25 whose question the host answers by a response."""
    made.peers["one"].behaviour = asks
    host = await made.host().begin(OLD, elicitation={"form": {}})
    async with host.stream("POST", tool(1)) as events:
        while (event := await events.next()) is not None:
            if event.data and event.data.get("method") == "elicitation/create":
                reply = {"jsonrpc": "2.0", "id": event.data["id"], "result": {"action": "decline"}}
                assert (await host.post(reply)).status_code == 202


async def close_connection(made: Stage) -> None:
    """A call over a connection that is closed after it."""
    async with httpx2.AsyncClient(base_url=made.base, trust_env=False, timeout=LIMIT_S) as client:
        assert "result" in (await Host(client).new(tool(1))).json()


def count_made() -> Counter[str]:
    """How many there are of each class of what a request makes."""
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, MADE))


@pytest.mark.parametrize(
    "use", [call_without_session, call_in_session, answer_by_round, answer_by_response, close_connection]
)
async def test_what_a_request_has_made_is_freed_without_a_collection(
    made: Stage, use: Callable[[Stage], Coroutine[Any, Any, None]]
) -> None:
    await use(made)  # so that all is imported
    gc.collect()
    before = count_made()
    gc.disable()
    try:
        for _ in range(5):
            await use(made)
        with anyio.move_on_after(LIMIT_S):
            while left := count_made() - before:  # connections end in their own time
                await anyio.sleep(0.01)
        assert not left
    finally:
        gc.enable()
