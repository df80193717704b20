"""What is kept of a stream for a client that resumes it, and how much of it at most."""

import asyncio

from hubbubd.downstream.hosts.limits import HostLimits
from hubbubd.downstream.sessions.replay import ReplayStream, ReplayStreams

LIMITS = HostLimits(replay_events=10, replay_bytes=1000)


async def ended(replay: ReplayStream, response: bytes) -> None:
    """Its request has this response."""
    done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def respond() -> bytes:
        return await done

    task = asyncio.create_task(respond())
    replay.end_with(task)
    done.set_result(response)
    await task
    await asyncio.sleep(0)


def resumed(kept: ReplayStreams, event_id: str) -> list[bytes] | None:
    """What comes after an event; None where it is not kept."""
    found = kept.find(event_id)
    return found and found[0].reopen(found[1])[0].take_all()


async def test_the_oldest_events_go_first_whosever_they_are() -> None:
    kept = ReplayStreams(LIMITS)
    first, second = kept.open(1), kept.open(1)
    for number in range(8):
        first.send(b"a%d" % number)
    for number in range(8):
        second.send(b"b%d" % number)
    assert len(kept) == 10
    assert resumed(kept, first.event_id(0)) == [b"a6", b"a7"]
    assert resumed(kept, second.event_id(6)) == [b"b6", b"b7"]


async def test_bytes_are_bounded_as_well_but_for_one_response_that_nobody_has_yet() -> None:
    kept = ReplayStreams(LIMITS)
    replay = kept.open(1)
    replay.is_known_to_host = True
    for _ in range(5):
        replay.send(b"x" * 300)
    assert kept.stored_bytes == 900
    await ended(replay, b"y" * 5000)
    assert (len(kept), kept.stored_bytes) == (1, 5000)
    assert resumed(kept, replay.event_id(0)) == [b"y" * 5000]
    replay.note_delivered()
    assert (len(kept), kept.stored_bytes) == (0, 0)
    assert kept.find(replay.event_id(0)) is None


async def test_a_stream_that_is_delivered_keeps_its_response_alone() -> None:
    kept = ReplayStreams(LIMITS)
    replay = kept.open(1)
    for _ in range(5):
        replay.send(b"x")
    await ended(replay, b"y")
    replay.note_delivered()
    assert len(kept) == 1
    assert resumed(kept, replay.event_id(0)) == [b"y"]


async def test_a_host_that_reads_nothing_loses_the_connection_and_may_resume() -> None:
    kept = ReplayStreams(HostLimits())
    replay = kept.open(1)
    outlet = replay.outlet
    for _ in range(6):
        replay.send(b"x" * 1024 * 1024)
    assert outlet.closed
    assert outlet.overrun
    assert outlet.is_empty
    again = resumed(kept, replay.event_id(5))
    assert again == [b"x" * 1024 * 1024]
