"""What waits to be written of the calls that are followed is bounded, whatever a server says."""

from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from hubbub.v1 import call_pb2 as pb
from hubbubd.core.calls.call_states import Call
from hubbubd.rpc.auth.gate import local_principal
from hubbubd.rpc.context import amend_context
from hubbubd.rpc.servicers import call_stream
from hubbubd.runtime.calls import CallSpec, LogEvent, ProgressEvent
from hubbubd.runtime.calls.drain_delays import DrainDelays
from hubbubd.runtime.hub import Hub

from .call_stream import begin, streams, waiting
from .conftest import LIMIT_S


class Talkative:
    """The calls of a hub, one of which says all this at once before it ends."""

    def __init__(self, hub: Hub, call: Call, *events: object) -> None:
        self.hub = hub
        self.closing = self.stopped = anyio.Event()
        self.draining, self.drain_delays = False, DrainDelays()
        self.call, self.events = call, events
        self._tell: Callable[[Call, object], None] = lambda _call, _live: None

    def find(self, _: str) -> Call:
        return self.call

    @contextmanager
    def listen(self, _: str, tell: Callable[[Call, object], None]) -> Generator[None]:
        self._tell = tell
        yield

    async def serve(self, _: pb.CallMethodRequest) -> pb.CallMethodResponse:
        for event in self.events:
            self._tell(self.call, event)
        return pb.CallMethodResponse()

    async def told(self, **more: Any) -> list[pb.StreamCallsResponse.Step]:
        """What the caller sees of the call."""
        amend_context(principal=local_principal())
        said: list[pb.StreamCallsResponse.Step] = []

        async def steps() -> AsyncIterator[pb.StreamCallsRequest]:
            start = begin(1, waiting(call_id=self.call.id), follow=True, **more)
            yield pb.StreamCallsRequest(steps=[start])

        async def write(message: bytes) -> None:
            said.extend(pb.StreamCallsResponse.FromString(message).steps)

        with anyio.fail_after(LIMIT_S):
            await streams(self.hub, self.serve, self).run(steps(), write)
        assert [step.WhichOneof("step") for step in (said[0], said[-1])] == ["ready", "completed"]
        return said[1:-1]


@pytest.fixture
async def call(hub: Hub) -> Call:
    return await hub.calls.start(CallSpec(server="away", method="tools/list", params=b"", call_id="mine"), "local")


async def test_newer_progress_and_changes_replace_those_that_are_unwritten(hub: Hub, call: Call) -> None:
    progress = [ProgressEvent(call_id="mine", progress=number, total=None, message="") for number in range(100)]
    told = await Talkative(hub, call, *progress, None, None).told()
    assert [step.WhichOneof("step") for step in told] == ["progress", "changed"]
    assert told[0].progress.progress == 99


async def test_log_lines_are_dropped_while_many_steps_wait(hub: Hub, call: Call) -> None:
    lines = [LogEvent("mine", b'{"data":%d}' % number) for number in range(2 * call_stream.MAX_UNWRITTEN_LOGS)]
    told = await Talkative(hub, call, *lines, None).told()
    assert len(told) == call_stream.MAX_UNWRITTEN_LOGS
    assert [step.log.params for step in told if step.HasField("log")] == [
        line.params for line in lines[: call_stream.MAX_UNWRITTEN_LOGS - 1]
    ]
    assert told[-1].HasField("changed")


async def test_news_that_are_too_long_for_their_caller_are_not_told(hub: Hub, call: Call) -> None:
    long, short = LogEvent("mine", b'"%s"' % (b"x" * 100)), LogEvent("mine", b'"short"')
    told = await Talkative(hub, call, long, None, short).told(max_response_bytes=40)
    assert [step.log.params for step in told] == [b'"short"']
