"""Calls on a stream, as a scripted hub serves them."""

from typing import Any

import anyio

from hubbub.v1 import call_pb2

LIMIT_S = 60
LIMITS = call_pb2.StreamCallsResponse.Ready(max_calls=10, max_request_bytes=1024 * 1024)


def said(**step: Any) -> call_pb2.StreamCallsResponse:
    return call_pb2.StreamCallsResponse(steps=[call_pb2.StreamCallsResponse.Step(**step)])


def done(request: Any) -> call_pb2.CallMethodResponse:
    call = call_pb2.Call(id=request.spec.call_id, result=b'{"ok":true}', state=call_pb2.CALL_STATE_COMPLETED)
    return call_pb2.CallMethodResponse(call=call)


async def carried(client: Any, came: list[Any]) -> None:
    """Calls until the stream carries one."""
    with anyio.fail_after(LIMIT_S):
        while not came:
            await client.call("s", "m")
    came.clear()
