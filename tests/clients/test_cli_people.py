"""What the command line prints for people."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from hubbub.v1 import admin_pb2, call_pb2, inbox_pb2, server_pb2, task_pb2
from hubbub_cli.output.printer import ADD_A_SERVER, COLUMNS, NOUNS, print_records


async def test_a_list_for_people_shows_ids_whole_and_steers_no_terminal(hub: Any, hubbub: Any) -> None:
    long = "r" * 60
    request = inbox_pb2.PendingRequest(
        id=long,
        kind=inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM,
        request=b'{"message":"\\u001b[2Jhow [bold]many?"}',
    )
    hub.replies["ListPendingRequests"] = lambda _: inbox_pb2.ListPendingRequestsResponse(pending_requests=[request])
    ran = await hubbub("inbox", "list", json=False)
    assert long in ran.out
    assert "[2Jhow [bold]many?" in ran.out
    assert "\x1b" not in ran.out


async def test_a_table_has_the_columns_in_which_something_stands_and_an_empty_one_says_so(
    hub: Any, hubbub: Any
) -> None:
    called = call_pb2.Call(id="c1", server="s", method="tools/call", state=call_pb2.CALL_STATE_WAITING_INPUT)
    called.created_at.GetCurrentTime()
    called.params, called.pending_request_ids[:] = b'{"name": "order_lunch"}', ["r1", "r2"]
    hub.replies["ListCalls"] = lambda _: call_pb2.ListCallsResponse(calls=[called])
    header, row = (await hubbub("calls", "list", json=False)).out.splitlines()
    assert header.split() == ["id", "server", "call", "state", "came", "asks"]
    assert [*row.split()[:4], row.split()[-1]] == ["c1", "s", "order_lunch", "waiting_input", "2"]
    hub.replies["ListCalls"] = lambda _: call_pb2.ListCallsResponse()
    empty = await hubbub("calls", "list", json=False)
    assert (empty.status, empty.out, empty.err) == (0, "", "no calls found\n")


@pytest.mark.parametrize("name", sorted(COLUMNS.keys() - {"Caller"}))
def test_where_there_are_none_each_kind_of_record_is_called_by_its_name(name: str, capsys: Any) -> None:
    kind: Any = type(name, (), {})
    print_records(kind, [], as_json=False)
    assert capsys.readouterr().err == f"no {NOUNS[name]} found\n"
    print_records(kind, [], as_json=True)
    assert capsys.readouterr() == ("", "")


async def test_who_has_no_servers_is_told_how_to_get_some(hub: Any, typed: Any) -> None:
    hub.replies["ListServers"] = lambda _: server_pb2.ListServersResponse()
    ran = await typed("servers", "list")
    assert ran.err == f"no servers found\n{ADD_A_SERVER}\n"


async def test_logs_of_a_server_that_has_logged_nothing_say_so(hub: Any, typed: Any) -> None:
    async def nothing(_: Any) -> AsyncIterator[Any]:
        for each in ():
            yield each

    hub.streams["TailLogs"] = nothing
    ran = await typed("logs", "demo")
    assert (ran.status, ran.out, ran.err) == (0, "", "demo has logged nothing yet\n")
    assert (await typed("logs", "demo", "--json")).err == ""


async def test_a_record_for_people_has_local_times_and_leaves_out_what_is_not_there(hub: Any, hubbub: Any) -> None:
    called = call_pb2.Call(id="c1", server="s", method="ping", state=call_pb2.CALL_STATE_COMPLETED)
    called.created_at.FromSeconds(1_000_000_000)
    hub.replies["GetCall"] = lambda _: call_pb2.GetCallResponse(call=called)
    ran = await hubbub("calls", "get", "c1", json=False, env={"TZ": "Europe/Vienna"})
    first, *facts = ran.out.splitlines()
    shown = dict(line.split(maxsplit=1) for line in facts)
    assert first == "ping on s: completed"
    assert shown["came"].startswith("2001-09-09 03:46:40, ")
    assert shown.keys() == {"id", "method", "came"}


async def test_a_record_without_a_page_of_its_own_has_a_line_for_each_field_in_which_something_stands(
    hub: Any, hubbub: Any
) -> None:
    token = admin_pb2.ApiToken(name="reports")
    token.created_at.FromSeconds(1_000_000_000)
    hub.replies["RevokeToken"] = lambda _: admin_pb2.RevokeTokenResponse(token=token)
    ran = await hubbub("tokens", "revoke", "reports", json=False, env={"TZ": "Europe/Vienna"})
    shown = dict(line.split(maxsplit=1) for line in ran.out.splitlines())
    assert shown["created_at"].startswith("2001-09-09 03:46:40, ")
    assert shown.keys() >= {"name", "created_at"}
    assert "expires_at" not in shown


async def test_a_task_is_told_by_its_facts(hub: Any, hubbub: Any) -> None:
    task = task_pb2.Task(id="t1", server="s", role=task_pb2.TASK_ROLE_CLIENT, ttl=Duration(seconds=5))
    task.created_at.FromSeconds(1_000_000_000)
    hub.replies["GetTask"] = lambda _: task_pb2.GetTaskResponse(task=task)
    ran = await hubbub("tasks", "get", "t1", json=False, env={"TZ": "Europe/Vienna"})
    first, *facts = ran.out.splitlines()
    shown = dict(line.split(maxsplit=1) for line in facts)
    assert first == "a task on s: unknown"
    assert shown["came"].startswith("2001-09-09 03:46:40, ")
    assert "call" not in shown


async def test_a_request_for_people_is_a_form_to_read(hub: Any, hubbub: Any) -> None:
    schema = b'{"properties":{"dish":{"type":"string","title":"Dish","enum":["soup","pie"]}},"required":["dish"]}'
    asked = inbox_pb2.PendingRequest(
        id="r1",
        server="kitchen",
        kind=inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM,
        state=inbox_pb2.PENDING_REQUEST_STATE_OPEN,
        request=b'{"message":"What shall\\u001b[2J it be?","requestedSchema":%s}' % schema,
    )
    hub.replies["GetPendingRequest"] = lambda _: inbox_pb2.GetPendingRequestResponse(pending_request=asked)
    ran = await hubbub("inbox", "show", "r1", json=False)
    assert "kitchen asks you to fill in a form" in ran.out
    assert "• dish*  Dish  soup | pie" in ran.out
    assert ran.out.endswith("inbox answer r1 dish=soup\n")
    assert "\x1b" not in ran.out
