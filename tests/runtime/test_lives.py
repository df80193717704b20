"""The lives of a member: one that was given up restarts, and waits for its database, and for its ports."""

import signal
from collections.abc import Awaitable, Callable

import anyio
import pytest
from structlog.testing import capture_logs

from hubbubd.program.app import run_terms
from hubbubd.store import StoreUnavailable

Outcome = bool | Exception


def script(*outcomes: Outcome) -> tuple[Callable[[bool], Awaitable[bool]], list[bool]]:
    """Lives that end so, one after the other; and which of them was started as the first."""
    left, told = list(outcomes), list[bool]()

    async def live(first: bool) -> bool:
        told.append(first)
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return live, told


class Signals:
    """Signals that come at once, or never; waiting for them can be given up."""

    def __init__(self, *, come: bool) -> None:
        self._come = come

    def __aiter__(self) -> "Signals":
        return self

    async def __anext__(self) -> signal.Signals:
        if not self._come:
            await anyio.sleep_forever()
        return signal.SIGTERM


AWAY = StoreUnavailable("away")
BUSY = OSError("cannot listen on 127.0.0.1:1: Address already in use")


async def test_a_member_that_was_given_up_waits_for_its_database_and_starts_anew() -> None:
    live, told = script(True, ExceptionGroup("tasks", [AWAY]), AWAY, True, False)
    with capture_logs() as logs:
        await run_terms(live, Signals(come=False))
    assert told == [True, False, False, False, False]
    again, restart = "this member cannot restart yet; it tries again", "this member of the fleet restarts"
    assert [each["event"] for each in logs] == [restart, again, again, restart]  # why, the life itself has said


async def test_so_it_does_for_a_port_that_somebody_has_taken_in_between() -> None:
    live, told = script(True, BUSY, ExceptionGroup("tasks", [BUSY]), False)
    await run_terms(live, Signals(come=False))
    assert told == [True, False, False, False]


async def test_it_ends_by_a_signal_while_it_waits() -> None:
    live, told = script(True, AWAY)
    await run_terms(live, Signals(come=True))
    assert told == [True, False]


@pytest.mark.parametrize("wrong", [AWAY, BUSY])
async def test_the_first_life_does_not_wait(wrong: Exception) -> None:
    live, _ = script(wrong)
    with pytest.raises(type(wrong)):
        await run_terms(live, Signals(come=False))


async def test_a_bug_is_raised() -> None:
    live, _ = script(True, ValueError("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        await run_terms(live, Signals(come=False))
