"""A list of many records costs no more per page when it is longer."""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import grpc
import pytest
from pydantic import TypeAdapter

from hubbub.v1 import admin_pb2, call_pb2, inbox_pb2, task_pb2
from hubbubd.config import HubSettings
from hubbubd.core.audit import AuditEntry, AuditKind
from hubbubd.core.calls import CallState
from hubbubd.core.inbox import RequestState
from hubbubd.core.tasks import TaskStatus
from hubbubd.runtime.hub import Hub
from hubbubd.store import Write
from hubbubd.store.sqlite import SqliteStore
from hubbubd.store.vault import TokenFile
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


async def calls_made(rpc: str, length: int, data_dir: Path) -> int:
    """How many calls, of Python and of C, it takes to read a whole history, page by page."""
    noun, make, request, member = LISTS[rpc]
    now = time.time()
    store = await SqliteStore.open(":memory:")
    records = [make(f"r{at:04}", now - at) for at in range(length)]
    await store.commit([Write(f"{noun}/{each.id}", TypeAdapter(type(each)).dump_json(each)) for each in records])
    count = 0

    def on_call(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    known, settings = McpConnector(TokenFile.open(data_dir)), HubSettings(data_dir=data_dir)
    found, token = list[str](), ""
    async with (
        settled(),
        Hub.open(store, known, {}, settings) as hub,
        serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=0) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        api = Caller(channel)
        while token or not found:
            sys.setprofile(on_call)
            page = await api(METHODS[rpc], request(page_size=PAGE, page_token=token))
            sys.setprofile(None)
            found += [each.id for each in getattr(page, member)]
            token = page.next_page_token
            if not token:
                break
    await store.close()
    assert found == [f"r{at:04}" for at in range(length)]
    return count


@pytest.mark.parametrize("rpc", LISTS)
async def test_a_history_of_twice_the_length_is_read_in_about_twice_the_steps(rpc: str, tmp_path: Path) -> None:
    await calls_made(rpc, PAGE, tmp_path)  # what is made once is made
    short, long = [await calls_made(rpc, length, tmp_path) for length in LENGTHS]
    assert long <= 2.5 * short
