"""Whatever happens to the lines between the hub and a server over stdio, each call ends once, with its own result or
with a reason, a question is answered once, and the next connection works."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from .conftest import LIMIT_S
from .session import CALL_S, Session, ended, session, text

STALLED_S = 4
"""Limit of what only a time limit ends."""

STARTED_S = 60
"""Limit of the start of many servers at once."""

DAMAGED = {"drop", "tear", "stall"}
"""Faults of which nothing is seen but that something does not come."""

HARMLESS = ("delay", "twice", "swap", "split", "trickle")
HARMFUL = ("drop", "tear", "stall", "close", "die")


def connecting(fault: str) -> set[str]:
    """A connection that is not made in time, or breaks while it is made, is made again."""
    return {"ok"}


def calling(fault: str) -> set[str]:
    """A call that may have been carried out is not sent again."""
    if fault in DAMAGED:
        return {"CALL_TIMEOUT"}
    return {"CONNECTION_LOST"} if fault in ("close", "die") else {"ok"}


def hinting(fault: str) -> set[str]:
    """A notification that does not come costs nothing but what it told; without the streams there is no call.

    A loss that is known before the call goes out costs it nothing either: it goes out over the next connection.
    """
    if fault == "stall":
        return {"CONNECTION_LOST", "CALL_TIMEOUT"}
    return {"CONNECTION_LOST", "CALL_TIMEOUT", "ok"} if fault in ("close", "die") else {"ok"}


STRIKES: dict[str, Callable[[str], set[str]]] = {
    ">initialize": connecting,
    "<answer initialize": connecting,
    ">notifications/initialized": hinting,
    ">tools/call": calling,
    "<elicitation/create": calling,
    ">answer elicitation/create": calling,
    "<answer tools/call": calling,
}
"""Of which kind the line is that is harmed, the first one, and how the call may end."""


async def harmed(made: Session, name: str, fault: str, kind: str) -> None:
    """One server's session with a fault in it; then one without."""
    allowed = STRIKES[kind](fault)
    await made.connected(name)
    call = await made.call(name, "ask", STALLED_S if "CALL_TIMEOUT" in allowed else CALL_S, message=f"{name} first")
    assert ended(call) in allowed, (kind, fault, call.fault)
    given = made.given.get(f"{name} first", [])
    if ended(call) == "ok":
        assert text(call) in {f"accept {answer}" for answer in given}
    # A call that reaches the server twice is another matter: it is carried out twice.
    assert len(given) <= 1 or (kind, fault) == (">tools/call", "twice")
    await made.settled(name)
    with anyio.fail_after(2 * LIMIT_S):
        while ended(call := await made.call(name, "ask", STALLED_S, message=f"{name} then")) != "ok":
            # Two directions of which one is dead look like a slow server until somebody connects again.
            assert ended(call) in ("CALL_TIMEOUT", "CONNECTION_LOST"), call.fault
            await made.hub.servers.disconnect(name)
            await made.hub.servers.connect(name)
            await made.connected(name)
    counts = made.hub.calls.counts(name)
    assert (counts.queued, counts.in_progress, counts.waiting_input) == (0, 0, 0)


@pytest.mark.parametrize("faults", [HARMLESS, HARMFUL], ids=["harmless", "harmful"])
async def test_each_call_ends_once_and_the_next_connection_works(
    faults: Sequence[str], peer_scripts: Path, tmp_path: Path
) -> None:
    strikes = {f"{fault}-{number}": (fault, kind) for number, kind in enumerate(STRIKES) for fault in faults}
    servers: dict[str, Any] = {}
    for name, (fault, kind) in strikes.items():
        peer = [sys.executable, "-I", "-S", str(peer_scripts / "plain_server.py")]
        servers[name] = {
            "command": sys.executable,
            "args": ["-I", "-S", str(peer_scripts / "interpose.py"), json.dumps([(kind, 1, fault)]), *peer],
            "env": {"FAULTED": str(tmp_path / name)},
            "protocol": "2025-11-25",
            "connect_timeout_s": STALLED_S if "initialize" in kind and fault in DAMAGED else STARTED_S,
        }
    async with session(servers, tmp_path) as made, anyio.create_task_group() as tasks:
        for name, (fault, kind) in strikes.items():
            tasks.start_soon(harmed, made, name, fault, kind)
