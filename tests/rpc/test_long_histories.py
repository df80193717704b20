"""A list of many records costs no more per page when it is longer."""

import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, cast

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from pydantic import TypeAdapter

from hubbub.v1 import admin_pb2, call_pb2, inbox_pb2, task_pb2
from hubbubd.config import HubSettings
from hubbubd.core.audit import AuditEntry, AuditKind
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.inbox.request_states import RequestState
from hubbubd.core.tasks import TaskStatus
from hubbubd.runtime.hub import Hub
from hubbubd.store import Write
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.store.vault.file import TokenFile
from hubbubd.upstream.connector import McpConnector

from .conftest import Caller, gate, serve, settled
from .test_bad_input import METHODS
from .test_showing import CALL, REQUEST, TASK

PAGE = 10
LENGTHS = (150, 300)

Make = Callable[[str, float], Any]
LISTS: dict[str, tuple[str, Make, Any, str]] = {
    "ListCalls": (
        "call",
        lambda name, at: replace(CALL, id=name, created_at=at, completed_at=at, state=CallState.COMPLETED),
        call_pb2.ListCallsRequest,
        "calls",
    ),
    "ListPendingRequests": (
        "request",
        lambda name, at: replace(REQUEST, id=name, created_at=at, claim=None, state=RequestState.WITHDRAWN),
        inbox_pb2.ListPendingRequestsRequest,
        "pending_requests",
    ),
    "ListTasks": (
        "task",
        lambda name, at: replace(TASK, id=name, created_at=at, ttl_ms=None, status=TaskStatus.COMPLETED),
        task_pb2.ListTasksRequest,
        "tasks",
    ),
    "ListAuditEntries": (
        "audit",
        lambda name, at: AuditEntry(id=name, kind=AuditKind.CHANGE, created_at=at, principal="me", action="X"),
        admin_pb2.ListAuditEntriesRequest,
        "entries",
    ),
}


WATCHES = {"ListCalls": "WatchCalls", "ListPendingRequests": "WatchPendingRequests", "ListTasks": "WatchTasks"}


async def pages(api: Caller, rpc: str) -> AsyncIterator[list[Any]]:
    """A list, page by page."""
    _, _, request, member = LISTS[rpc]
    token = None
    while token != "":
        page = await api(METHODS[rpc], request(page_size=PAGE, page_token=token or ""))
        yield list(getattr(page, member))
        token = page.next_page_token


async def snapshot(api: Caller, rpc: str) -> AsyncIterator[list[Any]]:
    """What a watch of the same records begins with, each by itself."""
    method = METHODS[WATCHES[rpc]]
    request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    path = f"/{method.containing_service.full_name}/{method.name}"
    watch = api.channel.unary_stream(path, request.SerializeToString, response.FromString)
    steps: Any = watch(request(), metadata=api.metadata)
    async for step in steps:
        if step.HasField("synced"):
            break
        yield [step.upsert]
    steps.cancel()


def _name(value: Any) -> str:
    return value if isinstance(value, str) else value.__name__


Read = Callable[[Caller, str], AsyncIterator[list[Any]]]


async def calls_made(read: Read, rpc: str, length: int, data_dir: Path) -> int:
    """How many calls, of Python and of C, it takes to read a whole history."""
    noun, make, _, _ = LISTS[rpc]
    now = time.time()
    store = await SqliteStore.open(":memory:")
    records = [make(f"r{at:04}", now - at) for at in range(length)]
    adapter: TypeAdapter[Any] = TypeAdapter(type(records[0]))
    await store.commit([Write(f"{noun}/{each.id}", adapter.dump_json(each)) for each in records])
    count = 0

    def on_call(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    known, settings = McpConnector(TokenFile.open(data_dir)), HubSettings(data_dir=data_dir)
    found = list[str]()
    async with (
        settled(),
        Hub.open(store, known, {}, settings) as hub,
        serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=0) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        api = Caller(channel)
        sys.setprofile(on_call)
        async with aclosing(cast("AsyncGenerator[list[Any]]", read(api, rpc))) as parts:
            async for part in parts:
                found += [each.id for each in part]
        sys.setprofile(None)
    await store.close()
    assert (found if read is pages else sorted(found)) == [f"r{at:04}" for at in range(length)]
    return count


@pytest.mark.parametrize(
    ("rpc", "read"), [*((rpc, pages) for rpc in LISTS), *((rpc, snapshot) for rpc in WATCHES)], ids=_name
)
async def test_a_history_of_twice_the_length_is_read_in_about_twice_the_steps(
    rpc: str, read: Read, tmp_path: Path
) -> None:
    await calls_made(read, rpc, PAGE, tmp_path)  # what is made once is made
    short, long = [await calls_made(read, rpc, length, tmp_path) for length in LENGTHS]
    assert long <= 2.5 * short
