"""What waits to be sent to the hub over one stream."""

import anyio
import pytest

from hubbub.v1 import mcp_pb2 as pb
from hubbub_bridge.uplink import Outbox
from hubbub_client.errors import Unavailable


@pytest.mark.parametrize("breaks", [False, True])
async def test_a_host_has_left_only_once_the_hub_was_told(breaks: bool) -> None:
    said: list[pb.ServeRequest] = []

    async def say(frame: pb.ServeRequest) -> None:
        if breaks:
            raise Unavailable("the stream is broken", reason="STREAM_ENDED")
        said.append(frame)

    outbox = Outbox()
    outbox.queue_message(b"{}", again=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.send_queued, say)
        if not breaks:
            outbox.queue_leave()
    assert outbox.sent_leave is not breaks
    assert [(list(frame.messages), frame.leave) for frame in said] == ([] if breaks else [([b"{}"], False), ([], True)])
