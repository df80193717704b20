"""What waits to be sent to the hub over one stream."""

import json
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from hubbub.v1 import mcp_pb2 as pb
from hubbub_bridge.options import BridgeOptions
from hubbub_bridge.uplink import Outbox, Uplink
from hubbub_client.errors import Unavailable
from hubbub_client.transport.discovery import HubLocation

from .conftest import staying

LIMIT_S = 60


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
    assert outbox.is_leave_sent is not breaks
    assert [(list(frame.messages), frame.leave) for frame in said] == ([] if breaks else [([b"{}"], False), ([], True)])


async def test_requests_wait_for_their_hub_while_another_one_has_its_address(hub: Any) -> None:
    hub.streams["Serve"] = staying(pb.ServeResponse(opened=pb.ServeResponse.Opened(max_message_bytes=1024)))
    hub.token = "of another hub"
    connected, failed = anyio.Event(), list[str]()
    conversation: Any = SimpleNamespace(
        on_connected=lambda *_: connected.set(),
        on_disconnected=lambda _: None,
        answer_from_cache=lambda: None,
        fail_requests=failed.append,
    )
    uplink = Uplink(
        BridgeOptions(where=HubLocation(data_dir=hub.data_dir), version="1"), conversation, anyio.sleep_forever
    )
    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(uplink.run)
            while len(hub.requests("Serve")) < 2:
                await anyio.sleep(0)
                uplink.retry_now()  # as a host that asks something
            client = {"address": hub.address, "token": hub.token}
            (hub.data_dir / "client.json").write_text(json.dumps(client))
            await connected.wait()
            tasks.cancel_scope.cancel()
    assert failed == []
