"""Faults at random between a hub and a server over HTTP: several in one session, with calls that run side by side."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from hubbubd.upstream.http.streams import delivery

from .conftest import LIMIT_S
from .faulty import ENDLESS, Fault, proxy
from .session import CALL_S, Session, ended, session, text

SESSIONS = int(os.environ.get("HUBBUB_FAULT_SESSIONS", "10"))
"""How many schedules are tried."""

CALLS = 3
STALLED_S = 2
KINDS = ("initialize", "notifications/initialized", "GET", "tools/call", "answer", "notifications/cancelled")
ENDS = {"ok", "CONNECTION_LOST", "CALL_TIMEOUT", "HTTP_ERROR", "INVALID_RESPONSE", "SESSION_LOST", "SERVER_ERROR"}

Schedule = dict[str, list[Fault | None]]
schedules = st.dictionaries(
    st.sampled_from(KINDS), st.lists(st.none() | st.sampled_from(list(Fault)), min_size=1, max_size=3), max_size=3
)


@pytest.fixture(scope="module")
def asking(shared_http_peer: Any, peer_scripts: Path) -> str:
    """The URL of a server that asks."""
    return f"{shared_http_peer([sys.executable, str(peer_scripts / 'asking_server.py'), 'http']).url}/mcp"


@settings(
    max_examples=SESSIONS,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)
@example({"tools/call": [Fault.DOUBLE_EVENTS, Fault.TWICE, Fault.CUT_STREAM], "answer": [Fault.CUT_AFTER]})
@given(schedules)
def test_no_schedule_of_faults_mixes_results_or_leaves_anything_behind(asking: str, schedule: Schedule) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
        patch.setattr(delivery, "ACKNOWLEDGE_LIMIT_S", STALLED_S)
        anyio.run(go_through, asking, schedule, Path(directory))


async def go_through(server: str, schedule: Schedule, directory: Path) -> None:
    """Calls side by side under the schedule, then one call without faults."""
    async with proxy() as way:
        url = way.line("one", server, schedule)
        stalls = any(fault in ENDLESS for faults in schedule.values() for fault in faults)
        options = {"url": url, "protocol": "2025-11-25", "connect_timeout_s": STALLED_S if stalls else LIMIT_S}
        async with session({"one": options}, directory) as made:
            await made.connected("one")
            async with anyio.create_task_group() as tasks:
                for number in range(CALLS):
                    tasks.start_soon(called, made, f"question {number}", STALLED_S if stalls else CALL_S, ENDS)
            await made.settled("one")
            way.lines["one"].heal()
            await made.connected("one")
            await called(made, "the last question", CALL_S, {"ok"})
            reached = way.lines["one"].reached
            # A call that ends first takes its question along: the server gets an error, which has no result.
            answers = [answer["content"]["name"] for answer in reached if answer is not None]
            given_ones = [name for names in made.given.values() for name in names]
            assert set(answers) <= set(given_ones)
            counts = made.hub.calls.counts("one")
            assert (counts.queued, counts.in_progress, counts.waiting_input) == (0, 0, 0)
            assert counts.completed + counts.failed == CALLS + 1


async def called(made: Session, question: str, limit_s: float, allowed: set[str]) -> None:
    """A call that asks, ended in one of these ways; what it returns is an answer to its own question."""
    call = await made.call("one", "ask", limit_s, message=question)
    assert ended(call) in allowed, call.fault
    if ended(call) == "ok":
        assert text(call) in {f"accept {name}" for name in made.given[question]}
