"""A server that is not connected: what waits for it says so at once, and a command that does not exist ends it."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from hubbub.v1 import call_pb2, common_pb2, server_pb2
from hubbub_cli.output import server_news
from hubbub_local import other_hubs
from hubbub_notify.rules import NoticeRuleProblem
from hubbub_notify.services import parse_services

from .conftest import staying, told

CONNECTING = server_pb2.SERVER_STATE_CONNECTING
CONNECTED = server_pb2.SERVER_STATE_CONNECTED


def server(name: str, state: Any, code: str = "", *, retryable: bool = True) -> server_pb2.Server:
    made = server_pb2.Server(name=name, state=state, desired_state=server_pb2.DESIRED_STATE_CONNECTED)
    if code:
        made.error.CopyFrom(common_pb2.Fault(code=code, message="exit code 3", retryable=retryable))
        made.next_retry_at.CopyFrom(Timestamp(seconds=32_503_680_000))
    return made


def shows(hub: Any, *steps: Any) -> None:
    """The hub shows servers as they are, then how they change."""

    hub.streams["WatchServers"] = told(server_pb2.WatchServersResponse, *steps)


async def added(hub: Any, hubbub: Any, seen: Sequence[Any], *words: str) -> Any:
    hub.replies["AddServer"] = lambda request: server_pb2.AddServerResponse(
        server=server(request.spec.name, CONNECTING)
    )
    shows(hub, *seen)
    return await hubbub("servers", "add", "x", *words, "--", "nosuchcommand")


async def test_a_command_that_does_not_exist_is_told_at_once(hub: Any, hubbub: Any) -> None:
    ran = await added(hub, hubbub, [server("x", CONNECTING, "COMMAND_NOT_FOUND", retryable=False)])
    assert ran.status == 1
    assert "x is not connected: COMMAND_NOT_FOUND" in ran.err
    assert ran.error["reason"] == "NOT_CONNECTED"
    assert ran.lines[0]["error"]["code"] == "COMMAND_NOT_FOUND"


async def test_adding_waits_for_the_one_server_and_says_what_is_in_the_way(hub: Any, hubbub: Any) -> None:
    failing = server("x", CONNECTING, "PROCESS_EXITED")
    ran = await added(hub, hubbub, [failing, server("x", CONNECTED)], "--wait")
    assert (ran.status, ran.lines[0]["state"]) == (0, "connected")
    assert "x is not connected: PROCESS_EXITED: exit code 3; next try in" in ran.err
    late = await added(hub, hubbub, [failing], "--wait", "--timeout", "0")
    assert (late.status, late.error["code"]) == (1, "DEADLINE_EXCEEDED")


async def test_waiting_for_all_ends_when_those_that_are_left_are_not_tried_again(hub: Any, hubbub: Any) -> None:
    shows(hub, server("a", CONNECTED), server("b", CONNECTING, "COMMAND_NOT_FOUND", retryable=False))
    hub.replies["ListServers"] = lambda _: server_pb2.ListServersResponse()
    ran = await hubbub("servers", "list", "--wait", "connected", "--timeout", "3000")
    assert (ran.status, ran.error["metadata"]) == (1, {"servers": "b"})


async def test_waiting_says_now_and_then_for_what(hub: Any, typed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_news, "WAIT_LINE_S", 0.01)
    shows(hub, server("slow", CONNECTING))
    hub.replies["ListServers"] = lambda _: server_pb2.ListServersResponse()
    ran = await typed("servers", "list", "--wait", "connected", "--timeout", "0.5")
    assert "waiting for slow" in ran.err


async def test_a_call_of_a_server_that_is_away_says_why_and_goes_on_waiting(hub: Any, hubbub_process: Any) -> None:
    shows(hub, server("dies", CONNECTING, "PROCESS_EXITED"))
    told = anyio.Event()

    async def answers(request: Any) -> Any:
        await told.wait()
        return call_pb2.CallMethodResponse(call=call_pb2.Call(id=request.spec.call_id, result=b'{"content": []}'))

    hub.streams["WatchCalls"] = staying(call_pb2.WatchCallsResponse(synced=common_pb2.WatchSynced()))
    hub.replies["CallMethod"] = answers
    with anyio.fail_after(60):
        async with await hubbub_process("call", "dies", "tool", "{}") as process:
            said = b""
            while b"next try in" not in said:
                said += await process.stderr.receive()
            told.set()
            assert await process.wait() == 0
    assert b"dies is not connected: PROCESS_EXITED: exit code 3; next try in" in said


def test_a_hub_that_has_the_address_is_named_with_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = other_hubs.RunningHub(pid=4711, data_dir=tmp_path / "its data", address="127.0.0.1:7878")
    monkeypatch.setattr(other_hubs, "find_hubs", lambda: iter([running]))
    said = other_hubs.add_advice(
        "cannot listen on 127.0.0.1:7878: Address already in use", "hubbub --data-dir /mine up -d"
    )
    assert f"process 4711, its data in {tmp_path}/its data" in said
    assert f"`hubbub --data-dir '{tmp_path}/its data' down` ends it" in said
    assert "`hubbub --data-dir /mine up -d` starts one beside it" in said
    assert other_hubs.add_advice("cannot listen on 127.0.0.1:7879: Address already in use", "any").endswith("in use")
    assert other_hubs.add_advice("there is no 7878", "any") == "there is no 7878"


@pytest.mark.usefixtures("processes")
def test_a_process_with_the_lock_of_a_data_directory_is_a_hub(tmp_path: Path) -> None:
    import fcntl

    (tmp_path / "client.json").write_text(json.dumps({"address": "127.0.0.1:1"}))
    lock = os.open(tmp_path / other_hubs.LOCK, os.O_RDWR | os.O_CREAT)
    try:
        os.write(lock, str(os.getpid()).encode())
        fcntl.flock(lock, fcntl.LOCK_EX)
        mine = [each for each in other_hubs.find_hubs() if each.data_dir == tmp_path]
        assert mine == [other_hubs.RunningHub(os.getpid(), tmp_path, "127.0.0.1:1")]
    finally:
        os.close(lock)


def test_an_address_of_ones_own_is_a_webhook() -> None:
    with pytest.raises(NoticeRuleProblem, match=r"did you mean json://\?"):
        parse_services(["http://127.0.0.1/x"], "URL")
    with pytest.raises(NoticeRuleProblem, match=r"did you mean jsons://\?"):
        parse_services(["https://example.com/x"], "URL")
