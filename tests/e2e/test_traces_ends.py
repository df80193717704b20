"""However a call or a question ends, no span is left unfinished: each is exported once, with why it ended, and what a
span stands below is exported as well."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest

import hubbub_client
from hubbub.v1 import call_pb2, call_pb2_grpc
from hubbub_client import ServerSpec, payload

from .collector import Collector, TraceOf, tree

CALL_METHOD = "hubbub.v1.CallService/CallMethod"
START_CALL = "hubbub.v1.CallService/StartCall"
QUESTION = "ask elicitation_form"
SOON = {"backoff_s": [0.05]}


@pytest.fixture
def script(peer_scripts: Path) -> Callable[..., dict[str, Any]]:
    """The configuration of one of our servers over stdio, which is tried again soon: `script(name, **options)`."""

    def made(name: str, **options: Any) -> dict[str, Any]:
        return {"command": sys.executable, "args": [str(peer_scripts / f"{name}.py"), "stdio"], **SOON, **options}

    return made


async def started(hub: Any, server: str, tool: str, **arguments: Any) -> Any:
    await hub.connected(server)
    return (await hub.client.start_tool(server, tool, arguments)).started


async def kill(hub: Any, server: str) -> None:
    """Kills the process of a server."""
    os.kill((await hub.client.servers.get(server)).pid, signal.SIGKILL)


async def whole(hub: Any, collector: Collector) -> None:
    """Ends the hub, so that everything is exported: each span once, and each that another one stands below."""
    await hub.terminate()
    ids = [span.id for span in collector.spans]
    assert len(ids) == len(set(ids)), tree(collector.spans)
    assert not [span.name for span in collector.spans if span.parent_id and span.parent_id not in ids], tree(
        collector.spans
    )


def ends(collector: Collector, call: Any) -> list[tuple[str, Any]]:
    """The spans of a call's trace by name, with why each failed."""
    found = TraceOf([span for span in collector.spans if span.trace_id == call.trace_id])
    found.require_sound()
    assert all(span.failed is ("error.type" in span.attributes) for span in found.spans)
    return sorted((span.name, span.attributes.get("error.type")) for span in found.spans)


def story(collector: Collector, call: Any) -> list[str]:
    """What happened to the one question of a call, but for who was shown it."""
    (asked,) = [span for span in collector.spans if span.trace_id == call.trace_id and span.name == QUESTION]
    return [what for what in asked.happened if what != "shown"]


async def test_a_server_that_dies_in_the_middle_of_a_call_with_a_question(
    start_hub: Any, script: Any, collector: Collector
) -> None:
    hub = await start_hub({"plain": script("plain_server")})
    call = await started(hub, "plain", "ask", message="Who?")
    await hub.asked()
    await kill(hub, "plain")
    assert (await hub.call(call.id)).error.code == "CONNECTION_LOST"
    await hub.connected("plain")
    await whole(hub, collector)
    assert ends(collector, call) == [
        (QUESTION, "REQUEST_WITHDRAWN"),
        ("call tools/call ask", "CONNECTION_LOST"),
        (START_CALL, None),
        ("queue", None),
        ("tools/call ask", "CONNECTION_LOST"),
    ]
    assert story(collector, call) == ["withdrawn"]


async def test_an_answer_that_a_dead_server_cannot_take(start_hub: Any, script: Any, collector: Collector) -> None:
    hub = await start_hub({"plain": script("plain_server")})
    call = await started(hub, "plain", "ask", message="Who?")
    (request,) = await hub.asked()
    os.kill((await hub.client.servers.get("plain")).pid, signal.SIGSTOP)
    await hub.client.inbox.answer(request.id, accept={"name": "Ann"})
    await kill(hub, "plain")
    assert (await hub.call(call.id)).error.code == "CONNECTION_LOST"
    await whole(hub, collector)
    assert ("call tools/call ask", "CONNECTION_LOST") in ends(collector, call)
    # Over a pipe it was handed over, which is all that can be known.
    assert story(collector, call)[0] == "answered"
    assert story(collector, call)[1:] in (["delivered"], ["failed"])


async def test_an_http_server_that_dies_in_the_middle_of_a_call_with_a_question(
    start_hub: Any, peer_scripts: Path, http_peer: Any, collector: Collector
) -> None:
    peer = http_peer([sys.executable, str(peer_scripts / "asking_server.py"), "http"])
    hub = await start_hub({"asking": {"url": f"{peer.url}/mcp", "protocol": "2025-11-25", "retries": 0, **SOON}})
    call = await started(hub, "asking", "ask")
    await hub.asked()
    peer.process.kill()
    ended = await hub.call(call.id)
    assert ended.error.code == "CONNECTION_LOST"
    await whole(hub, collector)
    assert ends(collector, call) == [
        (QUESTION, "REQUEST_WITHDRAWN"),
        ("call tools/call ask", "CONNECTION_LOST"),
        (START_CALL, None),
        ("queue", None),
        ("tools/call ask", "CONNECTION_LOST"),
    ]


async def test_a_server_that_is_given_up_with_calls_in_its_queue(
    start_hub: Any, script: Any, collector: Collector
) -> None:
    hub = await start_hub({"asking": script("asking_server", max_in_flight=1, retries=0)})
    working = await started(hub, "asking", "sleep", name="x")
    waiting = await started(hub, "asking", "cancelled_calls")
    await hub.call(working.id, "in_progress")
    await kill(hub, "asking")
    for call in (working, waiting):
        assert (await hub.call(call.id)).error.code == "CONNECTION_LOST"
    await whole(hub, collector)
    assert ends(collector, working) == [
        ("call tools/call sleep", "CONNECTION_LOST"),
        (START_CALL, None),
        ("queue", None),
        ("tools/call sleep", "CONNECTION_LOST"),
    ]
    assert ends(collector, waiting) == [
        ("call tools/call cancelled_calls", "CONNECTION_LOST"),
        (START_CALL, None),
        ("queue", None),
    ]


@pytest.mark.parametrize("way", ["remove", "update", "disconnect"])
async def test_a_server_that_goes_or_is_changed_with_a_call_in_its_queue_one_on_the_wire_and_one_that_asks(
    start_hub: Any, peer_scripts: Path, collector: Collector, way: str
) -> None:
    path = str(peer_scripts / "asking_server.py")
    spec = ServerSpec(
        name="asking", command=sys.executable, args=[path, "stdio"], protocol="2025-11-25", max_in_flight=1
    )
    allowed = [{"command": sys.executable, "args": args} for args in ([path, "stdio"], [path, "stdio", "another"])]
    hub = await start_hub(hub={"allow_commands": allowed})
    await hub.client.servers.add(spec)
    asking = await started(hub, "asking", "ask")
    await hub.asked()
    working = await started(hub, "asking", "sleep", name="x")
    await hub.call(working.id, "in_progress")
    waiting = await started(hub, "asking", "cancelled_calls")
    if way == "update":
        await hub.client.servers.update(replace(spec, args=[path, "stdio", "another"]))
    else:
        await getattr(hub.client.servers, way)("asking")
    why = "SERVER_DISCONNECTED" if way == "disconnect" else "SERVER_REMOVED"
    for call in (asking, working, waiting):
        assert (await hub.call(call.id)).error.code == why
    await whole(hub, collector)
    assert ends(collector, asking) == [
        (QUESTION, "REQUEST_WITHDRAWN"),
        ("call tools/call ask", why),
        (START_CALL, None),
        ("queue", None),
        ("tools/call ask", "cancelled"),
    ]
    assert ("tools/call sleep", "cancelled") in ends(collector, working)
    assert ends(collector, waiting) == [("call tools/call cancelled_calls", why), (START_CALL, None), ("queue", None)]


async def test_a_question_that_nobody_answers_in_time(start_hub: Any, script: Any, collector: Collector) -> None:
    hub = await start_hub({"plain": script("plain_server", answer_timeout_s=0.3)})
    call = await started(hub, "plain", "ask", message="Who?")
    assert (await hub.call(call.id)).state == "completed"
    await whole(hub, collector)
    assert (QUESTION, "REQUEST_EXPIRED") in ends(collector, call)
    assert ("call tools/call ask", None) in ends(collector, call)
    assert story(collector, call) == ["expired", "delivered"]


@pytest.mark.parametrize(
    ("server", "tool", "revision", "asked_by"),
    [("asking_server", "ask", "2025-11-25", "cancelled"), ("mrtr_server", "greet", "2026-07-28", None)],
)
async def test_a_call_that_is_cancelled_while_its_question_is_open(
    start_hub: Any, script: Any, collector: Collector, server: str, tool: str, revision: str, asked_by: str | None
) -> None:
    hub = await start_hub({"one": script(server, protocol=revision)})
    call = await started(hub, "one", tool)
    await hub.asked()
    assert (await hub.client.calls.cancel(call.id)).state == "cancelled"
    await whole(hub, collector)
    # In rounds the exchange that asked has ended well, by asking.
    assert (f"tools/call {tool}", asked_by) in ends(collector, call)
    assert (f"call tools/call {tool}", "CALL_CANCELLED") in ends(collector, call)
    assert (QUESTION, "REQUEST_WITHDRAWN") in ends(collector, call)
    assert story(collector, call) == ["withdrawn"]


async def test_a_question_that_its_server_takes_back(start_hub: Any, script: Any, collector: Collector) -> None:
    hub = await start_hub({"asking": script("asking_server", protocol="2025-11-25")})
    call = await started(hub, "asking", "impatient")
    assert (await hub.call(call.id)).state == "completed"
    await whole(hub, collector)
    assert (QUESTION, "REQUEST_WITHDRAWN") in ends(collector, call)
    assert ("call tools/call impatient", None) in ends(collector, call)


async def test_a_round_that_its_server_does_not_live_to_see(start_hub: Any, script: Any, collector: Collector) -> None:
    hub = await start_hub({"mrtr": script("mrtr_server", retries=0)})
    call = await started(hub, "mrtr", "greet")
    await hub.asked()
    await kill(hub, "mrtr")
    assert (await hub.call(call.id)).error.code == "CONNECTION_LOST"
    await whole(hub, collector)
    assert ends(collector, call) == [
        (QUESTION, "REQUEST_WITHDRAWN"),
        ("call tools/call greet", "CONNECTION_LOST"),
        (START_CALL, None),
        ("queue", None),
        ("tools/call greet", None),
    ]


@pytest.mark.parametrize("way", ["by the server", "by a person", "with its server", "by nobody fetching it"])
async def test_a_question_asked_as_a_task_that_comes_to_nothing(
    start_hub: Any, peer_scripts: Path, mcp1_python: str, collector: Collector, way: str
) -> None:
    path = str(peer_scripts / "tasks_server.py")
    hub = await start_hub({"tasks": {"command": mcp1_python, "args": [path, "stdio"], **SOON}})
    tool = "cancel_blocked" if way == "by the server" else "start"
    call = await started(hub, "tasks", tool, kind="elicitation")
    await hub.call(call.id)
    if tool == "start":
        (request,) = await hub.asked()
        match way:
            case "by a person":
                await hub.client.tasks.cancel(request.task_id)
            case "with its server":
                await hub.client.servers.disconnect("tasks")
            case _:
                await hub.client.inbox.answer(request.id, accept={"name": "Ann"})
                await hub.client.servers.disconnect("tasks")
    await whole(hub, collector)
    found = dict(ends(collector, call))
    fetched = way == "by nobody fetching it"
    assert found["task elicitation/create"] == (None if fetched else "TASK_CANCELLED")
    assert found[QUESTION] == ("NOT_DELIVERED" if fetched else "REQUEST_WITHDRAWN")
    assert story(collector, call) == (["answered", "failed"] if fetched else ["withdrawn"])


@pytest.mark.parametrize("way", ["fails", "cancelled", "forgotten"])
async def test_a_call_that_became_a_task_and_has_no_result(
    start_hub: Any, script: Any, collector: Collector, way: str
) -> None:
    hub = await start_hub({"ext": script("ext_tasks_server")})
    tool = "fails" if way == "fails" else "greet"
    call = await started(hub, "ext", tool)
    if tool == "greet":
        await hub.asked()
        if way == "cancelled":
            await hub.client.calls.cancel(call.id, abort=True)
        else:
            await kill(hub, "ext")  # the next one does not know the task
    error = {"fails": "SERVER_ERROR", "cancelled": "CALL_CANCELLED", "forgotten": "TASK_LOST"}[way]
    ended = await hub.call(call.id)
    assert ended.error.code == error
    await whole(hub, collector)
    found = dict(ends(collector, call))
    assert found[f"call tools/call {tool}"] == ended.error.code
    assert found["task tools/call"] == ("TASK_CANCELLED" if way == "cancelled" else "TASK_FAILED")
    assert found.get(QUESTION) == (None if way == "fails" else "REQUEST_WITHDRAWN")


@pytest.mark.parametrize("way", ["hangs up", "runs out of time"])
async def test_a_caller_who_goes_away(start_hub: Any, script: Any, collector: Collector, way: str) -> None:
    hub = await start_hub({"plain": script("plain_server")}, connected=True)
    params = payload.dumps({"name": "ask", "arguments": {"message": "Who?"}})
    spec = call_pb2.CallSpec(server="plain", method="tools/call", params=params, call_id="left")
    async with grpc.aio.insecure_channel(hub.ready["grpc"]) as channel:
        rpc = call_pb2_grpc.CallServiceStub(channel).CallMethod(
            call_pb2.CallMethodRequest(spec=spec),
            metadata=[("authorization", f"Bearer {hub.token}")],
            timeout=6 if way == "runs out of time" else None,
        )
        # Open or, where its time is over already, taken back.
        (request,) = await hub.watched(hub.client.inbox.watch(), lambda each: each.call_id == "left")
        if way == "hangs up":
            rpc.cancel()
        status = await rpc.code()
    assert status.name == ("CANCELLED" if way == "hangs up" else "DEADLINE_EXCEEDED")
    call = await hub.call("left")
    assert call.state == "cancelled"
    assert request.call_id == "left"
    await whole(hub, collector)
    assert ends(collector, call) == [
        (QUESTION, "REQUEST_WITHDRAWN"),
        ("call tools/call ask", "CALL_CANCELLED"),
        (CALL_METHOD, None),
        ("queue", None),
        ("tools/call ask", "cancelled"),
    ]
    (rpc_span,) = [s for s in collector.spans if s.trace_id == call.trace_id and s.name == CALL_METHOD]
    assert rpc_span.attributes["rpc.response.status_code"] == "CANCELLED"


@pytest.mark.parametrize("ends_with", ["terminate", "kill"])
async def test_a_hub_that_ends_after_a_caller_whose_call_goes_on_without_it(
    start_hub: Any, script: Any, collector: Collector, ends_with: str
) -> None:
    servers = {"mrtr": script("mrtr_server")}
    first = await start_hub(servers, connected=True)
    params = {"name": "greet", "arguments": {}}
    async with anyio.create_task_group() as gone:
        gone.start_soon(lambda: first.client.calls.call("mrtr", "tools/call", params, call_id="shared"))
        (request,) = await first.asked()
        await first.client.calls.start("mrtr", "tools/call", params, call_id="shared")
        await collector.until(lambda spans: [s for s in spans if s.name == "tools/call greet"])
        gone.cancel_scope.cancel()
    # The caller is above the call, and has told of itself; the next hub must not do it again. A call is exported when
    # its end is on the disk, and so is what came before it.
    await collector.until(lambda spans: [s for s in spans if s.name == CALL_METHOD])
    await first.client.call_tool("mrtr", "echo", {"text": "x"})
    (echo,) = (call for call in await first.client.calls.list() if call.id != "shared")
    await collector.trace(echo.trace_id, CALL_METHOD, "call tools/call echo")
    await getattr(first, ends_with)()
    second = await start_hub(servers, connected=True)
    await second.client.inbox.answer(request.id, accept={"name": "Ann"})
    ended = await second.call("shared")
    assert ended.state == "completed"
    await whole(second, collector)
    found = ends(collector, ended)
    assert found.count((CALL_METHOD, None)) == 1
    assert ("call tools/call greet", None) in found
    assert (QUESTION, None) in found


async def test_a_hub_that_stops_while_somebody_waits_for_a_call_that_goes_on(
    start_hub: Any, script: Any, collector: Collector
) -> None:
    servers = {"mrtr": script("mrtr_server")}
    first = await start_hub(servers, connected=True)
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            with pytest.raises(hubbub_client.Unavailable):
                await first.client.calls.call("mrtr", "tools/call", {"name": "greet", "arguments": {}}, call_id="left")

        tasks.start_soon(call)
        (request,) = await first.asked()
        await first.terminate()
    second = await start_hub(servers, connected=True)
    await second.client.inbox.answer(request.id, accept={"name": "Ann"})
    ended = await second.call("left")
    await whole(second, collector)
    assert ends(collector, ended).count((CALL_METHOD, "UNAVAILABLE")) == 1
    assert (QUESTION, None) in ends(collector, ended)
