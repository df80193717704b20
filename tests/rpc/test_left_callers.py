"""Callers that are gone: they are noticed, and what gRPC logs of them."""

import logging

import anyio
import grpc
import pytest
from grpc._cython.cygrpc import ExecuteBatchError  # pyright: ignore[reportMissingModuleSource, reportUnknownVariableType]

from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter
from hubbubd.rpc.listeners import connect
from hubbubd.rpc.listeners.grpc_server import is_not_disconnect
from hubbubd.runtime.hub import Hub

from .conftest import until
from .test_connect import Web, origins, web

__all__ = ["origins", "web"]


@pytest.mark.parametrize(
    ("problem", "logged"),
    [(ExecuteBatchError("Failed"), False), (grpc.aio.UsageError("wrong"), True), (None, True)],
)
def test_a_response_that_nobody_waits_for_is_no_fault_of_the_hub(problem: BaseException | None, logged: bool) -> None:
    about = None if problem is None else (type(problem), problem, None)
    record = logging.LogRecord("grpc._cython.cygrpc", logging.ERROR, __file__, 1, "raised in core", (), about)
    assert is_not_disconnect(record) is logged


async def test_a_caller_that_hangs_up_long_after_its_request_came_is_noticed(
    hub: Hub, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "REQUEST_S", 0.1)
    spec = {"spec": {"server": "away", "method": "tools/list", "callId": "waits"}}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(web.post, "/hubbub.v1.CallService/CallMethod", spec)
        await until(lambda: bool(hub.calls.select(CallFilter())))
        await anyio.sleep(0.2)
        tasks.cancel_scope.cancel()
    await until(lambda: hub.calls.get("waits").state is CallState.CANCELLED)
