"""The command line as scripts use it: exit codes, JSON lines, errors."""

import json
import re
import signal
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from hubbub.v1 import admin_pb2, call_pb2, common_pb2, inbox_pb2, server_pb2, task_pb2

from .conftest import staying, told

LIMIT_S = 60
CONNECTED, CONNECTING = server_pb2.SERVER_STATE_CONNECTED, server_pb2.SERVER_STATE_CONNECTING


class Lines:
    """The JSON lines of a process, as they come."""

    def __init__(self, process: Any) -> None:
        self._stream = BufferedByteReceiveStream(process.stdout)

    async def next(self) -> Any:
        return json.loads(await self._stream.receive_until(b"\n", 1 << 20))


def _answered(request: Any) -> Any:
    record = inbox_pb2.PendingRequest(id=request.id, state=inbox_pb2.PENDING_REQUEST_STATE_ANSWERED)
    return inbox_pb2.AnswerPendingRequestResponse(pending_request=record)


def _server(name: str, state: Any, desired: Any = server_pb2.DESIRED_STATE_CONNECTED) -> Any:
    return server_pb2.Server(name=name, state=state, desired_state=desired)


async def test_a_list_is_one_object_per_line(hub: Any, hubbub: Any) -> None:
    hub.replies["ListPendingRequests"] = lambda request: inbox_pb2.ListPendingRequestsResponse(
        pending_requests=[inbox_pb2.PendingRequest(id="r1", server="ö"), inbox_pb2.PendingRequest(id="r2", call_id="c")]
    )
    ran = await hubbub("inbox", "list", "--server", "s", "--kind", "sampling", "--state", "open", "--state", "expired")
    assert ran.status == 0
    assert [(line["id"], line["server"], line["call_id"]) for line in ran.lines] == [("r1", "ö", None), ("r2", "", "c")]
    assert '"server":"ö"' in ran.out
    condition = hub.requests("ListPendingRequests")[0].filter
    assert (condition.server, list(condition.kinds), list(condition.states)) == ("s", [3], [1, 4])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("inbox", "answer", "r"), "give one answer"),
        (("inbox", "answer", "r", "--decline", "--text", "x"), "give one answer"),
        (("inbox", "answer", "r", "--accept", "{"), "{, given as --accept, is no valid JSON: expecting property name"),
        (("inbox", "answer", "r", "--result", "[1]"), "--result must be a JSON object"),
        (("inbox", "list", "--kind", "song"), "'song' is not one of 'elicitation_form'"),
        (("inbox", "show"), "Missing argument"),
        (("call", "s", "t", "nope"), "nope is neither KEY=VALUE nor a JSON object"),
        (("send", "s", "m", '"text"'), "must be a JSON object"),
        (("servers", "add", "x"), "--url URL or -- COMMAND"),
        (("audit", "list", "--since", "0001-01-01T00:00:00+01:00"), "out of range"),
        (("servers", "add", "x", "--url", "u", "--set", "nope=1"), "nope"),
        (("frobnicate",), "No such command"),
        ((), "Missing command"),
    ],
)
async def test_wrong_usage_exits_2_with_a_json_error(hub: Any, hubbub: Any, words: tuple[str, ...], says: str) -> None:
    ran = await hubbub(*words)
    assert ran.status == 2
    assert (ran.error["code"], ran.error["reason"]) == ("INVALID_ARGUMENT", "USAGE")
    assert says in ran.error["message"]
    assert not hub.seen


async def test_a_refusal_exits_1_with_its_status_reason_and_metadata(hub: Any, hubbub: Any, refusal: Any) -> None:
    def refuse(_: Any) -> Any:
        raise refusal("FAILED_PRECONDITION", "ALREADY_ANSWERED", "ann was first", {"answered_by": "ann"})

    hub.replies["AnswerPendingRequest"] = refuse
    ran = await hubbub("inbox", "answer", "r", "--accept")
    assert ran.status == 1
    assert ran.error == {
        "code": "FAILED_PRECONDITION",
        "reason": "ALREADY_ANSWERED",
        "message": "ann was first",
        "metadata": {"answered_by": "ann"},
    }
    plain = await hubbub("inbox", "answer", "r", "--accept", json=False)
    assert plain.err.splitlines() == [
        "error: ann was first (ALREADY_ANSWERED)",
        f"next: hubbub --data-dir {hub.data_dir} inbox list --state open",
        "more: hubbub explain ALREADY_ANSWERED, https://help.test/ALREADY_ANSWERED",
    ]


async def test_an_unreachable_hub_exits_1_and_says_where_it_was_looked_for(hub: Any, hubbub: Any) -> None:
    await hub.stop()
    ran = await hubbub("--connect-timeout", "0.3", "status")
    assert ran.status == 1
    assert (ran.error["code"], ran.error["reason"]) == ("UNAVAILABLE", "HUB_UNREACHABLE")
    assert hub.address in ran.error["message"]
    assert "client.json" in ran.error["message"]


@pytest.mark.parametrize(
    ("flags", "kind", "value"),
    [
        (("--accept",), "accept", inbox_pb2.AnswerPendingRequestRequest.Accept()),
        (("--accept", "{}"), "accept", inbox_pb2.AnswerPendingRequestRequest.Accept(content=b"{}")),
        (("--accept", '{"n": 1}'), "accept", inbox_pb2.AnswerPendingRequestRequest.Accept(content=b'{"n":1}')),
        (('--accept={"n": 1}',), "accept", inbox_pb2.AnswerPendingRequestRequest.Accept(content=b'{"n":1}')),
        (("--decline",), "decline", inbox_pb2.AnswerPendingRequestRequest.Decline()),
        (("--cancel",), "cancel", inbox_pb2.AnswerPendingRequestRequest.Cancel()),
        (("--text", "--hello"), "text", "--hello"),
        (("--text", ""), "text", ""),
        (("--result", '{"roots": []}'), "result", b'{"roots":[]}'),
        (("--error", "no"), "reject", inbox_pb2.AnswerPendingRequestRequest.Reject(message="no")),
    ],
)
async def test_every_answer_reaches_the_hub_as_it_was_meant(
    hub: Any, hubbub: Any, flags: tuple[str, ...], kind: str, value: Any
) -> None:
    hub.replies["AnswerPendingRequest"] = _answered
    ran = await hubbub("inbox", "answer", "r", *flags, "--claim", "c", "--answer-id", "a")
    assert ran.status == 0, ran.err
    assert ran.lines[0]["state"] == "answered"
    (request,) = hub.requests("AnswerPendingRequest")
    assert (request.id, request.claim_id, request.answer_id) == ("r", "c", "a")
    assert request.WhichOneof("answer") == kind
    assert getattr(request, kind) == value


async def test_a_bare_accept_may_stand_before_another_option(hub: Any, hubbub: Any) -> None:
    hub.replies["AnswerPendingRequest"] = _answered
    ran = await hubbub("inbox", "answer", "--accept", "--answer-id", "a", "r")
    assert ran.status == 0, ran.err
    assert hub.requests("AnswerPendingRequest")[0].accept.content == b""


async def test_claim_and_release_print_the_record(hub: Any, hubbub: Any) -> None:
    def claim(request: Any) -> Any:
        record = inbox_pb2.PendingRequest(id=request.id, claim=inbox_pb2.PendingRequest.Claim(id="secret-claim"))
        return inbox_pb2.ClaimPendingRequestResponse(pending_request=record)

    hub.replies["ClaimPendingRequest"] = claim
    hub.replies["ReleasePendingRequest"] = lambda request: inbox_pb2.ReleasePendingRequestResponse(
        pending_request=inbox_pb2.PendingRequest(id=request.id)
    )
    claimed = await hubbub("inbox", "claim", "r", "--ttl", "5")
    assert claimed.lines[0]["claim"]["id"] == "secret-claim"
    assert hub.requests("ClaimPendingRequest")[0].ttl.seconds == 5
    released = await hubbub("inbox", "release", "r", "--claim", "secret-claim")
    assert released.lines[0]["claim"] is None
    assert hub.requests("ReleasePendingRequest")[0].claim_id == "secret-claim"


async def test_a_server_is_added_by_its_command_with_its_options(hub: Any, hubbub: Any) -> None:
    hub.replies["AddServer"] = lambda request: server_pb2.AddServerResponse(
        server=server_pb2.Server(name=request.spec.name)
    )
    words = ("--env", "A=b=c", "--set", "call_timeout_s=5", "--set", "timeout_message=[late]", "--set", "roots=[]")
    words += ("--set", "confirm=writes")
    ran = await hubbub("servers", "add", "git", *words, "--", "uvx", "-v", "--json", "mcp-server-git")
    assert ran.status == 0, ran.err
    spec = hub.requests("AddServer")[0].spec
    assert (spec.name, spec.stdio.command, list(spec.stdio.args)) == ("git", "uvx", ["-v", "--json", "mcp-server-git"])
    assert (dict(spec.stdio.env), spec.timeouts.call.seconds) == ({"A": "b=c"}, 5)
    assert (spec.pending_requests.timeout_message, spec.roots.WhichOneof("choice")) == ("[late]", "fixed")
    assert list(spec.tools.confirm) == ["writes"]


async def test_waiting_for_connected_ends_when_every_wanted_server_is(hub: Any, hubbub: Any) -> None:
    listed = [_server("a", CONNECTED), _server("off", server_pb2.SERVER_STATE_DISCONNECTED, 2)]
    step = server_pb2.WatchServersResponse

    hub.streams["WatchServers"] = staying(
        step(upsert=_server("a", CONNECTING)),
        step(upsert=listed[1]),
        step(synced=common_pb2.WatchSynced()),
        step(upsert=listed[0]),
    )
    hub.replies["ListServers"] = lambda _: server_pb2.ListServersResponse(servers=listed)
    ran = await hubbub("servers", "list", "--wait", "connected", "--timeout", "30")
    assert ran.status == 0, ran.err
    assert [(line["name"], line["state"]) for line in ran.lines] == [("a", "connected"), ("off", "disconnected")]


async def test_waiting_for_connected_exits_1_at_its_timeout_and_names_who_is_late(hub: Any, hubbub: Any) -> None:
    hub.streams["WatchServers"] = told(server_pb2.WatchServersResponse, _server("slow", CONNECTING))
    hub.replies["ListServers"] = lambda _: server_pb2.ListServersResponse(servers=[_server("slow", CONNECTING)])
    ran = await hubbub("servers", "list", "--wait", "connected", "--timeout", "0.5")
    assert ran.status == 1
    assert (ran.error["code"], ran.error["metadata"]) == ("DEADLINE_EXCEEDED", {"servers": "slow"})


async def test_who_gives_no_time_to_wait_is_told_how_the_servers_are(hub: Any, hubbub: Any) -> None:
    hub.replies["ListServers"] = lambda _: server_pb2.ListServersResponse()
    for slow, status in ((CONNECTING, 1), (CONNECTED, 0)):
        servers = (_server("here", CONNECTED), _server("slow", slow))
        hub.streams["WatchServers"] = told(server_pb2.WatchServersResponse, *servers)
        ran = await hubbub("servers", "list", "--wait", "connected", "--timeout", "0")
        assert ran.status == status
        assert not status or ran.error["metadata"] == {"servers": "slow"}


def _calls(hub: Any, *, pending: str = "") -> anyio.Event:
    step, told = call_pb2.WatchCallsResponse, anyio.Event()

    async def script(request: Any) -> AsyncIterator[Any]:
        (call_id,) = request.filter.ids
        yield step(synced=common_pb2.WatchSynced())
        yield step(progress=call_pb2.Progress(call_id=call_id, progress=1, total=2, message="half"))
        if pending:
            yield step(upsert=call_pb2.Call(id=call_id, pending_request_ids=[pending]))
        yield step(upsert=call_pb2.Call(id=call_id, state=call_pb2.CALL_STATE_COMPLETED))
        told.set()
        await anyio.sleep_forever()

    hub.streams["WatchCalls"] = script
    return told


def _results(hub: Any, told: anyio.Event, result: bytes) -> None:
    async def reply(request: Any) -> Any:
        await told.wait()
        return call_pb2.CallMethodResponse(call=call_pb2.Call(id=request.spec.call_id, result=result))

    hub.replies["CallMethod"] = reply


async def test_a_call_prints_its_result_and_its_progress_apart(hub: Any, hubbub: Any) -> None:
    _results(hub, _calls(hub), b'{"content":[{"type":"text","text":"ok"}]}')
    ran = await hubbub("call", "s", "t", '{"a": 1}', "--timeout", "9", "--call-id", "mine")
    assert ran.status == 0, ran.err
    assert ran.lines == [{"content": [{"type": "text", "text": "ok"}]}]
    assert ran.err.splitlines() == ["progress 1/2 half"]
    spec = hub.requests("CallMethod")[0].spec
    assert (spec.server, spec.method, spec.call_id, spec.timeout.seconds) == ("s", "tools/call", "mine", 9)
    assert json.loads(spec.params) == {"name": "t", "arguments": {"a": 1}}


async def test_a_result_that_is_an_error_prints_and_exits_1(hub: Any, hubbub: Any) -> None:
    _results(hub, _calls(hub), b'{"isError":true,"content":[]}')
    ran = await hubbub("call", "s", "t")
    assert (ran.status, ran.lines) == (1, [{"isError": True, "content": []}])


async def test_a_call_that_needs_a_person_says_how_to_answer(hub: Any, hubbub: Any) -> None:
    hub.replies["GetPendingRequest"] = lambda request: inbox_pb2.GetPendingRequestResponse(
        pending_request=inbox_pb2.PendingRequest(
            id=request.id,
            server="s",
            kind=inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM,
            state=inbox_pb2.PENDING_REQUEST_STATE_OPEN,
            request=b'{"message":"how many?"}',
        )
    )
    _results(hub, _calls(hub, pending="r7"), b"{}")
    ran = await hubbub("call", "s", "t")
    assert ran.status == 0, ran.err
    assert "s asks (elicitation_form, r7): how many?" in ran.err
    assert re.search(r"hubbub --data-dir \S+ inbox answer r7 --accept", ran.err)


async def test_a_question_that_was_answered_meanwhile_is_no_reason_to_fail(hub: Any, hubbub: Any, refusal: Any) -> None:
    def gone(_: Any) -> Any:
        raise refusal("NOT_FOUND", "REQUEST_NOT_FOUND")

    hub.replies["GetPendingRequest"] = gone
    _results(hub, _calls(hub, pending="r7"), b"{}")
    ran = await hubbub("call", "s", "t")
    assert (ran.status, ran.lines) == (0, [{}])


async def test_a_call_that_fails_exits_1_with_its_error(hub: Any, hubbub: Any, refusal: Any) -> None:
    _calls(hub)

    def fail(_: Any) -> Any:
        raise refusal("UNKNOWN", "SERVER_ERROR", "no such tool", {"jsonrpc_code": "-32602"})

    hub.replies["CallMethod"] = fail
    ran = await hubbub("send", "s", "tools/call")
    assert ran.status == 1
    assert (ran.error["reason"], ran.error["metadata"]) == ("SERVER_ERROR", {"jsonrpc_code": "-32602"})
    assert hub.requests("CallMethod")[0].spec.params == b""


async def test_a_detached_call_prints_the_call(hub: Any, hubbub: Any) -> None:
    hub.replies["StartCall"] = lambda request: call_pb2.StartCallResponse(
        call=call_pb2.Call(id="c1", state=call_pb2.CALL_STATE_QUEUED)
    )
    ran = await hubbub("call", "s", "t", "--detach")
    assert (ran.status, ran.lines[0]["id"], ran.lines[0]["state"]) == (0, "c1", "queued")


async def test_interrupting_a_call_hangs_up_and_exits_1(hub: Any, hubbub_process: Any) -> None:
    _calls(hub)
    came, hung_up = anyio.Event(), anyio.Event()

    async def reply(_: Any) -> Any:
        came.set()
        try:
            await anyio.sleep_forever()
        finally:
            hung_up.set()

    hub.replies["CallMethod"] = reply
    with anyio.fail_after(LIMIT_S):
        async with await hubbub_process("call", "s", "t") as process:
            await came.wait()
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 1
        await hung_up.wait()


async def test_a_watch_prints_each_step_at_once_outlives_a_restart_and_ends_well(hub: Any, hubbub_process: Any) -> None:
    step = inbox_pb2.WatchPendingRequestsResponse

    async def script(request: Any) -> AsyncIterator[Any]:
        if request.resume_token == "mine":
            yield step(resume_token="1", reset=common_pb2.WatchReset(reason=common_pb2.RESET_REASON_MALFORMED))
            yield step(resume_token="2", upsert=inbox_pb2.PendingRequest(id="r1"))
            yield step(resume_token="3", synced=common_pb2.WatchSynced())
            yield step(resume_token="4", bookmark=common_pb2.WatchBookmark())
        else:
            yield step(resume_token="5", removed=common_pb2.WatchRemoved(id="r1"))
        await anyio.sleep_forever()

    hub.streams["WatchPendingRequests"] = script
    with anyio.fail_after(LIMIT_S):
        async with await hubbub_process("inbox", "watch", "--resume", "mine", "--state", "open") as process:
            lines = Lines(process)
            seen = [await lines.next() for _ in range(4)]
            await hub.stop()
            await hub.start()
            seen.append(await lines.next())
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
    assert [(line["type"], line["resume_token"]) for line in seen] == [
        ("reset", "1"),
        ("upsert", "2"),
        ("synced", "3"),
        ("bookmark", "4"),
        ("removed", "5"),
    ]
    assert seen[1]["record"]["id"] == seen[4]["record"]["id"] == "r1"
    assert hub.requests("WatchPendingRequests")[-1].resume_token == "4"


async def test_exec_runs_once_for_each_request_that_becomes_open(hub: Any, hubbub_process: Any) -> None:
    step, request = inbox_pb2.WatchPendingRequestsResponse, partial(inbox_pb2.PendingRequest, kind=1, server="s")
    done = hub.data_dir / "done"
    ran = anyio.Event()

    async def script(_: Any) -> AsyncIterator[Any]:
        yield step(upsert=request(id="old", state=inbox_pb2.PENDING_REQUEST_STATE_ANSWERED))
        yield step(upsert=request(id="r1", state=inbox_pb2.PENDING_REQUEST_STATE_OPEN))
        yield step(
            upsert=request(
                id="r1", state=inbox_pb2.PENDING_REQUEST_STATE_OPEN, claim=inbox_pb2.PendingRequest.Claim(by="x")
            )
        )
        while not done.exists() or not done.read_text().endswith("\n"):
            await anyio.sleep(0.02)
        ran.set()
        await anyio.sleep_forever()

    hub.streams["WatchPendingRequests"] = script
    command = f'echo "$HUBBUB_REQUEST_ID $HUBBUB_SERVER $(cut -c 1-10)" >> {done}'
    with anyio.fail_after(LIMIT_S):
        async with await hubbub_process("inbox", "watch", "--exec", command) as process:
            await ran.wait()
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
    assert done.read_text() == 'r1 s {"id": "r1\n'


async def test_a_refused_watch_that_would_run_commands_ends_with_the_plain_error(
    hub: Any, hubbub: Any, refusal: Any
) -> None:
    async def script(_: Any) -> AsyncIterator[Any]:
        raise refusal("PERMISSION_DENIED", "NOT_YOURS")
        yield

    hub.streams["WatchPendingRequests"] = script
    ran = await hubbub("inbox", "watch", "--exec", "true")
    assert (ran.status, ran.error["reason"]) == (1, "NOT_YOURS")


@pytest.mark.parametrize(("state", "status"), [("COMPLETED", 0), ("FAILED", 1), ("CANCELLED", 1)])
async def test_watching_a_call_ends_with_it(hub: Any, hubbub: Any, state: str, status: int) -> None:
    step = call_pb2.WatchCallsResponse
    hub.replies["GetCall"] = lambda request: call_pb2.GetCallResponse(call=call_pb2.Call(id=request.id))

    hub.streams["WatchCalls"] = staying(
        step(upsert=call_pb2.Call(id="c", state=call_pb2.CALL_STATE_IN_PROGRESS)),
        step(synced=common_pb2.WatchSynced()),
        step(progress=call_pb2.Progress(call_id="c", progress=1)),
        step(removed=common_pb2.WatchRemoved(id="other")),  # a watch that resumes gets all that has left
        step(upsert=call_pb2.Call(id="c", state=call_pb2.CallState.Value(f"CALL_STATE_{state}"))),
    )
    ran = await hubbub("calls", "watch", "c")
    assert ran.status == status, ran.err
    assert [line["type"] for line in ran.lines] == ["upsert", "synced", "progress", "upsert"]


async def test_queue_tasks_calls_and_status_print_what_the_hub_says(hub: Any, hubbub: Any) -> None:
    counts = server_pb2.QueueCounts(queued=2)
    hub.replies["GetQueue"] = lambda _: call_pb2.GetQueueResponse(counts=counts)
    hub.replies["ClearQueue"] = lambda _: call_pb2.ClearQueueResponse(cleared=2)
    hub.replies["ListTasks"] = lambda _: task_pb2.ListTasksResponse(tasks=[task_pb2.Task(id="t", role=1)])
    hub.replies["GetTaskResult"] = lambda _: task_pb2.GetTaskResultResponse(result=b'{"action":"accept"}')
    hub.replies["CancelCall"] = lambda request: call_pb2.CancelCallResponse(call=call_pb2.Call(id=request.id))
    versions = admin_pb2.Versions(python="3.11")
    hub.replies["GetStatus"] = lambda _: admin_pb2.GetStatusResponse(version="9", versions=versions, watchers=4)
    assert (await hubbub("queue", "s")).lines[0]["queued"] == 2
    assert (await hubbub("queue", "s", "--clear")).lines[0]["queued"] == 0
    assert (await hubbub("tasks", "list", "--role", "receiver")).lines[0]["role"] == "receiver"
    assert (await hubbub("tasks", "result", "t")).lines == [{"action": "accept"}]
    assert (await hubbub("calls", "cancel", "c", "--abort")).lines[0]["id"] == "c"
    assert hub.requests("CancelCall")[0].abort
    assert (await hubbub("status")).lines[0]["watchers"] == 4
    hub.replies["ListServers"] = lambda _: server_pb2.ListServersResponse()
    assert "hubbubd 9" in (await hubbub("status", json=False)).out


async def test_the_address_and_the_token_come_from_the_environment_too(hub: Any, hubbub: Any) -> None:
    hub.replies["GetStatus"] = lambda _: admin_pb2.GetStatusResponse(version="9")
    (hub.data_dir / "client.json").unlink()
    ran = await hubbub("--as", "ann", "status", env={"HUBBUB_ADDRESS": hub.address, "HUBBUB_TOKEN": hub.token})
    assert ran.status == 0, ran.err
    assert hub.seen[-1][2]["hubbub-as"] == "ann"
