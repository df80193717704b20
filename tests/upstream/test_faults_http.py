"""Whatever goes wrong between the hub and a server over HTTP, each call ends once, with its own result or with a
reason, what is said of an answer's delivery is true, and all goes on as soon as nothing goes wrong any more."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbubd import payload
from hubbubd.core.inbox.request_states import Delivery, PendingRequest, RequestState
from hubbubd.upstream.http.streams import delivery

from .faulty import ENDLESS, Fault, Line, Proxy, proxy
from .session import CALL_S, Session, ended, session, text, until

STALLED_S = 6
"""Limit of what only a time limit ends."""

WITHOUT_BODY = tuple(fault for fault in Fault if "EVENT" not in fault.name and "STREAM" not in fault.name)
BREAKS = {
    Fault.CUT_BEFORE,
    Fault.CUT_AFTER,
    Fault.CUT_EVENT,
    Fault.CUT_STREAM,
    Fault.END_EVENT,
    Fault.END_STREAM,
    Fault.HALF_CLOSE,
    Fault.CLIENT_HALF_CLOSE,
}
HARMLESS = set(Fault) - BREAKS - ENDLESS - {Fault.REFUSE}


def all_well(fault: Fault) -> set[str]:
    """The hub gets over it before anybody notices."""
    return {"ok"}


def lost(fault: Fault) -> set[str]:
    """A request that may have been carried out is not sent again."""
    if fault in ENDLESS:
        return {"CALL_TIMEOUT"}
    if fault is Fault.REFUSE:
        return {"HTTP_ERROR"}
    if fault is Fault.CLIENT_HALF_CLOSE:
        return {"ok", "CONNECTION_LOST"}  # a server may take it for the end of the connection
    return {"CONNECTION_LOST"} if fault in BREAKS else {"ok"}


def lost_or_torn(fault: Fault) -> set[str]:
    """As `lost`, for a response that is one JSON document and not a stream of events."""
    if fault is Fault.END_STREAM:
        return {"ok"}
    return {"INVALID_RESPONSE"} if fault in (Fault.END_EVENT, Fault.DOUBLE_EVENTS) else lost(fault)


def unless_torn(fault: Fault) -> set[str]:
    """It is sent again, unless what came back is no MCP."""
    return {"INVALID_RESPONSE"} if fault in (Fault.END_EVENT, Fault.DOUBLE_EVENTS) else {"ok"}


def unless_stalled(fault: Fault) -> set[str]:
    """It is sent again where that does no harm."""
    return {"CALL_TIMEOUT", "CONNECTION_LOST", "ok"} if fault in ENDLESS else {"ok"}


@dataclass(frozen=True)
class Strike:
    """A fault at the `number`th exchange of a kind, in a session with one peer; `ends` says how the call may end."""

    peer: str
    kind: str
    number: int
    ends: Callable[[Fault], set[str]]
    faults: tuple[Fault, ...] = tuple(Fault)


PEERS: dict[str, tuple[list[str], dict[str, Any], str, dict[str, Any]]] = {
    "asks on the wire": (["asking_server.py", "http"], {"protocol": "2025-11-25"}, "ask", {"message": "{}"}),
    "speaks both": (["asking_server.py", "http"], {}, "count", {"steps": "3"}),
    "asks in rounds": (["mrtr_server.py", "http"], {}, "greet", {}),
    "makes tasks": (["ext_tasks_server.py", "http"], {}, "greet", {}),
    "asks with tasks": (["tasks_server.py", "http"], {}, "poll", {"kind": "elicitation"}),
}
"""Script, options, and the tool that asks."""

STRIKES = [
    Strike("speaks both", "server/discover", 1, all_well),
    Strike("asks on the wire", "initialize", 1, all_well),
    Strike("asks on the wire", "notifications/initialized", 1, unless_stalled, WITHOUT_BODY),
    Strike("asks on the wire", "GET", 1, all_well, WITHOUT_BODY),
    Strike("asks on the wire", "tools/call", 1, lost),
    Strike("asks on the wire", "answer", 1, unless_stalled, WITHOUT_BODY),
    Strike("asks in rounds", "tools/call", 1, lost_or_torn),
    Strike("asks in rounds", "tools/call", 2, lost_or_torn),
    Strike("makes tasks", "tasks/get", 2, unless_torn),
    Strike("makes tasks", "tasks/update", 1, all_well),
    Strike("asks with tasks", "answer", 1, unless_stalled, WITHOUT_BODY),
    Strike("asks with tasks", "answer", 2, unless_stalled, WITHOUT_BODY),
]


@pytest.fixture
def answers_are_acknowledged_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is not acknowledged has failed after as long as a test can wait."""
    monkeypatch.setattr(delivery, "ACKNOWLEDGE_LIMIT_S", 4.0)


@pytest.fixture(scope="module")
def reach(shared_http_peer: Any, peer_scripts: Path, mcp1_python: str) -> Callable[[str], str]:
    """The URL of a peer, which runs for all tests."""
    started: dict[str, str] = {}

    def url(peer: str) -> str:
        script, *arguments = PEERS[peer][0]
        if script not in started:
            python = mcp1_python if script == "tasks_server.py" else sys.executable
            started[script] = shared_http_peer([python, str(peer_scripts / script), *arguments]).url
        return f"{started[script]}/mcp"

    return url


async def struck(made: Session, way: Proxy, strike: Strike, name: str, fault: Fault) -> None:
    """One server's session with a fault in it; then one without."""
    line = way.lines[name]
    _, _, tool, arguments = PEERS[strike.peer]
    for step, allowed in (("first", strike.ends(fault)), ("then", {"ok"})):
        limit_s = STALLED_S if "CALL_TIMEOUT" in allowed else CALL_S
        await made.connected(name)
        question = f"{name} {step}"
        call = await made.call(name, tool, limit_s, **{key: value.format(question) for key, value in arguments.items()})
        assert ended(call) in allowed, (fault, step, call.fault)
        if ended(call) == "ok" and "message" in arguments:
            assert text(call) in {f"accept {given}" for given in made.given[question]}
        # The answer to a task whose server does not know of it waits to be fetched, until the task is over.
        if strike.peer != "asks with tasks":
            requests = await made.settled(name)
            if strike.peer == "asks on the wire":
                await truly_delivered(line, requests)
        # What opens a stream, or tells, does so beside the calls.
        await until(lambda: line.struck)
        line.heal()
    assert line.struck == [(strike.kind, fault)]
    counts = made.hub.calls.counts(name)
    assert (counts.queued, counts.in_progress, counts.waiting_input) == (0, 0, 0)
    assert counts.completed + counts.failed == 2


async def truly_delivered(line: Line, requests: list[PendingRequest]) -> None:
    """What the requests say of their answers' delivery, beside what the server received."""
    for request in requests:
        if request.state is not RequestState.ANSWERED:
            continue
        answer = payload.loads(request.answer.payload)
        if request.delivery in (Delivery.DELIVERED, Delivery.LATE):
            await until(lambda answer=answer: answer in line.answers)
        else:
            assert answer not in line.answers
    # None is an error: a question on the stream of a call that has ended is refused.
    answers = [payload.dumps(answer) for answer in line.reached if answer is not None]
    assert len(set(answers)) <= len(requests)
    assert set(answers) <= {request.answer.payload for request in requests if request.answer}


@pytest.mark.parametrize("strike", STRIKES, ids=lambda strike: f"{strike.kind}-{strike.number}-{strike.peer}")
async def test_each_call_ends_once_and_the_next_one_works(
    strike: Strike, reach: Callable[[str], str], tmp_path: Path
) -> None:
    await all_struck({fault.name: (strike, fault) for fault in strike.faults if fault not in ENDLESS}, reach, tmp_path)


@pytest.mark.usefixtures("answers_are_acknowledged_soon")
async def test_what_never_comes_is_not_waited_for_longer_than_configured(
    reach: Callable[[str], str], tmp_path: Path
) -> None:
    cells = [(strike, fault) for strike in STRIKES for fault in strike.faults if fault in ENDLESS]
    await all_struck({f"{number}-{cell[1].name}": cell for number, cell in enumerate(cells)}, reach, tmp_path)


async def test_a_connection_whose_pings_get_lost_is_made_again(reach: Callable[[str], str], tmp_path: Path) -> None:
    async with proxy() as way:
        plan = {"ping": [Fault.CUT_AFTER, None, Fault.STALL_AFTER, Fault.STALL_BEFORE]}
        url = way.line("one", reach("asks on the wire"), plan)
        pinged = {"url": url, "protocol": "2025-11-25", "ping_interval_s": 0.3, "ping_timeout_s": 2}
        async with session({"one": pinged}, tmp_path) as made:
            found: list[str] = []

            def lost() -> bool:
                fault = made.hub.servers.get("one").connection.fault
                found.extend([fault.code] if fault is not None else [])
                return bool(found)

            await until(lost)
            assert found[0] == "PING_TIMEOUT"
            assert way.lines["one"].seen["ping"] == 4
            await made.connected("one")
            assert ended(await made.call("one", "ask", message="are you there?")) == "ok"


async def all_struck(cells: dict[str, tuple[Strike, Fault]], reach: Callable[[str], str], directory: Path) -> None:
    """Each of these at a server of its own, all at once."""
    async with proxy() as way:
        servers: dict[str, Any] = {}
        for name, (strike, fault) in cells.items():
            plan = {strike.kind: [*[None] * (strike.number - 1), fault]}
            limits = {"call_timeout_s": STALLED_S} if fault in ENDLESS else {}
            if fault in ENDLESS and strike.kind in ("server/discover", "initialize"):
                limits["connect_timeout_s"] = STALLED_S
            servers[name] = {"url": way.line(name, reach(strike.peer), plan), **PEERS[strike.peer][1], **limits}
        async with session(servers, directory) as made, anyio.create_task_group() as tasks:
            for name, (strike, fault) in cells.items():
                tasks.start_soon(struck, made, way, strike, name, fault)
