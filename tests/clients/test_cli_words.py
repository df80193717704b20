"""What the command line tells people in words: why a server is not there, what became of a call, who is waited for."""

import ast
import dataclasses
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub.v1 import admin_pb2, call_pb2, catalog_pb2, common_pb2, inbox_pb2, server_pb2
from hubbub_cli.output.details import print_details
from hubbub_client.data.records import Call, CallApproval, CallOrigin, Fault, QueueCounts, Record, Server, Task
from hubbub_frontend.display.records import describe_call

from ..syntax import tree
from .conftest import staying

CLIENTS = Path(__file__).resolve().parents[2] / "clients"
FORM = b'{"message":"Soup\\u001b]0;EVIL\\u0007 or pie?","requestedSchema":{"type":"object","properties":{}}}'
ENDED = "CONNECTION_LOST: the process ended, exit code 1; it said: boom: API_KEY\N{REPLACEMENT CHARACTER} missing"


def dead(state: Any = server_pb2.SERVER_STATE_ERROR) -> Any:
    """A server whose process ends as soon as it is started, and said why before."""
    fault = common_pb2.Fault(
        code="CONNECTION_LOST",
        message="the process ended, exit code 1",
        details=b'{"exit_code":1,"stderr":["Traceback:","boom: API_KEY\\u009b missing","  "]}',
    )
    return server_pb2.Server(
        name="dead", state=state, desired_state=server_pb2.DESIRED_STATE_CONNECTED, error=fault, attempt=3
    )


def listed(hub: Any, *servers: Any) -> None:
    hub.replies["ListServers"] = lambda _: server_pb2.ListServersResponse(servers=servers)
    hub.replies["GetServer"] = lambda _: server_pb2.GetServerResponse(server=servers[0])
    hub.replies["GetStatus"] = lambda _: admin_pb2.GetStatusResponse(version="9", serving=True)
    hub.replies["ListCatalogEntries"] = lambda _: catalog_pb2.ListCatalogEntriesResponse()
    hub.replies["ListPendingRequests"] = lambda _: inbox_pb2.ListPendingRequestsResponse()
    finding = admin_pb2.Finding
    findings = [
        finding(about="server dead", severity=admin_pb2.Finding.SEVERITY_OK, message="/usr/bin/python3"),
        finding(about="store", severity=admin_pb2.Finding.SEVERITY_OK, message="it is sound"),
    ]
    hub.replies["CheckHub"] = lambda _: admin_pb2.CheckHubResponse(findings=findings)


@pytest.mark.parametrize("words", [("status",), ("servers", "list"), ("servers", "get", "dead"), ("doctor",)])
async def test_a_server_that_dies_at_start_is_told_of_with_its_last_words_and_where_more_are(
    hub: Any, hubbub: Any, words: tuple[str, ...]
) -> None:
    listed(hub, dead())
    ran = await hubbub(*words, json=False)
    shown = " ".join(ran.out.split())
    assert ENDED in shown
    assert f"hubbub --data-dir {hub.data_dir} logs dead" in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("state", ["ERROR", "CONNECTING"])
async def test_the_doctor_never_says_ok_of_what_it_also_finds_ill(hub: Any, hubbub: Any, state: str) -> None:
    listed(hub, dead(server_pb2.ServerState.Value(f"SERVER_STATE_{state}")))
    ran = await hubbub("doctor")
    assert ran.status == 1
    verdicts = [line["verdict"] for line in ran.lines if line["about"] == "server dead"]
    assert verdicts == ["fail"]
    assert [line["verdict"] for line in ran.lines if line["about"] == "store"] == ["ok"]


@pytest.mark.parametrize("severity", [0, 99])
async def test_the_doctor_takes_a_finding_of_a_severity_it_does_not_know_for_a_warning(
    hub: Any, hubbub: Any, severity: Any
) -> None:
    listed(hub, dead())
    finding = admin_pb2.Finding(about="moon", severity=severity, message="it is full")
    hub.replies["CheckHub"] = lambda _: admin_pb2.CheckHubResponse(findings=[finding])
    ran = await hubbub("doctor", json=False)
    assert "warn  moon: it is full" in ran.out


def faults_put_together(tree: ast.AST) -> list[int]:
    """The lines where a text is made of a `code` and a `message`."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        and {"code", "message"} <= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    ]


def test_only_one_function_of_the_command_line_says_why_something_failed() -> None:
    """So that none leaves out what a process said last."""
    sources = [CLIENTS / "hubbub_frontend/display/records.py", *sorted((CLIENTS / "hubbub_cli").rglob("*.py"))]
    found = {path.name: lines for path in sources if (lines := faults_put_together(tree(path)))}
    assert {name: len(lines) for name, lines in found.items()} == {"records.py": 1}


async def test_a_call_without_a_terminal_says_at_once_whom_it_waits_for_and_prints_the_result(
    hub: Any, hubbub: Any
) -> None:
    ran = await called(hub, hubbub, lambda call: call.pending_request_ids.append("req_1"))
    assert "waiting for a person: demo asks (elicitation_form, req_1): Soup" in ran.err
    assert f"answer with: hubbub --data-dir {hub.data_dir} inbox answer req_1" in ran.err
    assert "\x1b" not in ran.err
    assert ran.out == '{"content":[{"type":"text","text":"done"}]}\n'


async def test_a_call_says_of_a_question_that_is_perhaps_its_own_that_it_is_perhaps(hub: Any, hubbub: Any) -> None:
    ran = await called(hub, hubbub, lambda call: call.perhaps_pending_request_ids.append("req_1"))
    assert "demo asks, perhaps for this call (elicitation_form, req_1)" in ran.err
    assert ran.err.count("inbox answer req_1") == 1


async def test_a_hub_that_shows_another_request_than_was_asked_for_does_not_end_the_command(
    hub: Any, hubbub: Any
) -> None:
    answered = inbox_pb2.PendingRequest()
    answered.CopyFrom(QUESTION)
    answered.state = inbox_pb2.PENDING_REQUEST_STATE_ANSWERED
    ran = await called(hub, hubbub, lambda call: call.pending_request_ids.append("req_2"), answered)
    assert "req_2 is answered" in ran.err


async def test_a_question_of_a_kind_that_only_a_newer_hub_knows_is_followed_until_it_is_closed(
    hub: Any, hubbub: Any
) -> None:
    newer = inbox_pb2.PendingRequest(id="req_3", server="demo", kind=99, state=inbox_pb2.PENDING_REQUEST_STATE_OPEN)
    answered = inbox_pb2.PendingRequest()
    answered.CopyFrom(newer)
    answered.state = inbox_pb2.PENDING_REQUEST_STATE_ANSWERED
    ran = await called(hub, hubbub, lambda call: call.pending_request_ids.append("req_3"), answered, newer)
    assert "req_3 is answered" in ran.err
    assert not hub.requests("WatchPendingRequests")[-1].filter.kinds


async def called(hub: Any, hubbub: Any, asks: Callable[[Any], None], watched: Any = None, question: Any = None) -> Any:
    """A call whose server asks a question first; it goes on when the command has read the question."""
    read = anyio.Event()
    state = call_pb2.CALL_STATE_IN_PROGRESS

    async def watch(request: Any) -> AsyncIterator[Any]:
        step = call_pb2.WatchCallsResponse
        yield step(synced=common_pb2.WatchSynced())
        for _ in range(2):
            asking = call_pb2.Call(id=request.filter.ids[0], state=state)
            asks(asking)
            yield step(upsert=asking)
        await anyio.sleep_forever()

    async def call(request: Any) -> Any:
        await read.wait()
        result = b'{"content":[{"type":"text","text":"done"}]}'
        ended = call_pb2.Call(id=request.spec.call_id, state=call_pb2.CALL_STATE_COMPLETED, result=result)
        return call_pb2.CallMethodResponse(call=ended)

    async def requests(_: Any) -> AsyncIterator[Any]:
        read.set()
        yield inbox_pb2.WatchPendingRequestsResponse(upsert=watched or QUESTION)
        await anyio.sleep_forever()

    hub.streams["WatchCalls"], hub.streams["WatchPendingRequests"] = watch, requests
    hub.replies["CallMethod"] = call
    hub.replies["GetPendingRequest"] = lambda _: inbox_pb2.GetPendingRequestResponse(
        pending_request=question or QUESTION
    )
    ran = await hubbub("call", "demo", "order_lunch", json=False)
    assert ran.status == 0, ran.err
    return ran


QUESTION = inbox_pb2.PendingRequest(
    id="req_1",
    server="demo",
    kind=inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM,
    state=inbox_pb2.PENDING_REQUEST_STATE_OPEN,
    request=FORM,
)


async def test_a_watched_call_is_told_in_words_and_ends_with_its_result(hub: Any, hubbub: Any) -> None:
    step, call = call_pb2.WatchCallsResponse, call_pb2.Call
    about: dict[str, Any] = {
        "id": "lunch",
        "server": "demo",
        "method": "tools/call",
        "params": b'{"name":"order_lunch"}',
    }
    over = call(**about, state=call_pb2.CALL_STATE_COMPLETED, result=b'{"content":[{"type":"text","text":"2 x soup"}]}')
    over.created_at.FromSeconds(100)
    over.completed_at.FromSeconds(104)
    hub.replies["GetCall"] = lambda _: call_pb2.GetCallResponse(call=over)

    hub.streams["WatchCalls"] = staying(
        step(upsert=call(**about, state=call_pb2.CALL_STATE_WAITING_INPUT, pending_request_ids=["req_1"])),
        step(synced=common_pb2.WatchSynced()),
        step(progress=call_pb2.Progress(call_id="lunch", progress=1, total=2, message="cooking")),
        step(log=call_pb2.CallLog(call_id="lunch", params=b'{"level":"info","data":"hot"}')),
        step(upsert=over),
    )
    ran = await hubbub("calls", "watch", "lunch", json=False)
    heading, first, *between, last, result = ran.out.splitlines()
    assert heading.split() == ["time", "id", "what"]
    assert first.split(maxsplit=1)[1] == "lunch  order_lunch on demo: waits for a person (req_1)"
    assert [line.split(maxsplit=1)[1] for line in between] == [
        "lunch  1/2 cooking",
        "lunch  info  hot",
    ]
    assert last.split(maxsplit=1)[1] == "lunch  order_lunch on demo: completed after 4.0 s"
    assert result == "2 x soup"
    for command in ("get", "show"):
        shown = (await hubbub("calls", command, "lunch", json=False)).out.splitlines()
        assert (shown[0], shown[-1]) == ("order_lunch on demo: completed after 4.0 s", "2 x soup")


# A value for each type of a field, which is found again in what is printed.
FAULT = Fault(
    code="FAULT_CODE",
    category="server",
    message="the reason",
    retryable=True,
    help_url="https://help.test/x",
    details=None,
)
KNOWN: dict[str, Any] = {
    "transport": "stdio",
    "desired_state": "connected",
    "server_info": {"name": "introduced", "version": "1.2"},
    "capabilities": {"prompts": {}},
    "error": FAULT,
    "queue": QueueCounts(queued=31, in_progress=32, waiting_input=33, completed=34, failed=35, cancelled=36),
    "method": "tools/call",
    "params": {"name": "order_lunch", "arguments": {"dish": "soup"}},
    "result": {"content": [{"type": "text", "text": "the outcome"}]},
    "approval": CallApproval(
        rule="deletes",
        pending_request_id="req_1",
        remembered_id=None,
        approved_by=("ada", "ben"),
        granted=True,
        changed_arguments={"dish": "soup"},
    ),
    "origin": CallOrigin(host="claude-code 2.1", profile="work", roles=("caller",), app=True),
}
SHOWN = {
    "trusted": ["the owner of the hub"],
    "server_info": ["introduced", "1.2"],
    "capabilities": ["prompts"],
    "error": ["FAULT_CODE", "the reason", "help.test/x"],
    "queue": ["31 queued", "32 in progress", "33 waiting", "34 completed", "35 failed", "36 cancelled"],
    "params": ["order_lunch", "soup"],
    "result": ["the outcome"],
    "gave_up": ["hubbub servers connect"],
    "approval": ["by ada, ben, rule 'deletes'", "changed to"],
    "origin": ["claude-code 2.1 work", "a page of an app"],
}


SAID_OF_A_STATE = {"waiting_input": "waits for a person", "in_progress": "perhaps waiting for a person"}


def filled(kind: type[Record], state: str) -> Any:
    """A record with something in each field."""
    values: dict[str, Any] = {}
    for number, field in enumerate(dataclasses.fields(kind), 41):
        by_type = {
            "int": number,
            "int | None": number,
            "bool": True,
            "tuple[str, ...]": (f"id-{field.name}",),
            "datetime": datetime(2001, 2, 3, 4, number, tzinfo=UTC),
            "datetime | None": datetime(2001, 2, 3, 4, number, tzinfo=UTC),
        }
        values[field.name] = (KNOWN | {"state": state}).get(
            field.name, by_type.get(str(field.type), f"text-{field.name}")
        )
    return kind(**values)


@pytest.mark.parametrize(
    ("kind", "state"), [(Server, "error"), (Call, "waiting_input"), (Call, "in_progress"), (Task, "")]
)
def test_each_field_of_a_record_is_told_to_people(kind: type[Record], state: str, capsys: Any) -> None:
    record = filled(kind, state)
    print_details(record)
    printed = capsys.readouterr().out
    for field in dataclasses.fields(kind):
        value = getattr(record, field.name)
        signs = [f":{value:%M}:"] if isinstance(value, datetime) else SHOWN.get(field.name)
        if field.name == "next_retry_at":
            signs = ["again "]
        for sign in signs or ([value[0]] if isinstance(value, tuple) else [str(value)]):
            assert (SAID_OF_A_STATE.get(state, state) if field.name == "state" else sign) in printed, field.name
    assert "{" not in printed.replace('{"dish": "soup"}', "")


@pytest.mark.parametrize(
    ("state", "more", "told"),
    [
        ("queued", {}, "ping on s: queued"),
        ("in_progress", {}, "ping on s: in progress"),
        ("in_progress", {"perhaps_pending_ids": ("r1",)}, "ping on s: perhaps waiting for a person (r1)"),
        ("waiting_input", {"pending_ids": ("r1", "r2")}, "ping on s: waits for a person (r1, r2)"),
        ("failed", {"error": FAULT}, "ping on s: failed: FAULT_CODE: the reason"),
        ("cancelled", {"error": None}, "ping on s: cancelled"),
        ("completed", {"result": {"isError": True}}, "ping on s: completed, and the tool says that this is an error"),
    ],
)
def test_what_happened_to_a_call_is_one_line(state: Any, more: dict[str, Any], told: str) -> None:
    empty = dict.fromkeys(each.name for each in dataclasses.fields(Call))
    call: Any = Call(**{**empty, "server": "s", "method": "ping", "state": state, "pending_ids": (), **more})
    assert describe_call(call) == told
