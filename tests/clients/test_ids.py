"""Beginnings of ids, as people copy and type them."""

from typing import Any

import pytest

from hubbub.v1 import call_pb2, inbox_pb2, task_pb2

CALLS = ("lunch", "lunar", "dinner")


@pytest.fixture
def kitchen(hub: Any, refusal: Any) -> Any:
    """A hub with some calls, pending requests and tasks."""

    def get(noun: str, ids: tuple[str, ...], response: Any) -> Any:
        def reply(request: Any) -> Any:
            if request.id not in ids:
                raise refusal("NOT_FOUND", f"{noun.upper()}_NOT_FOUND", f"no {noun} {request.id!r}", {noun: request.id})
            return response(request.id)

        return reply

    requests, tasks = ("req_14ab", "req_15cd"), ("t1", "t10")
    call, task = call_pb2.Call, task_pb2.Task
    hub.replies |= {
        "GetCall": get("call", CALLS, lambda id_: call_pb2.GetCallResponse(call=call(id=id_, server="demo"))),
        "ListCalls": lambda _: call_pb2.ListCallsResponse(calls=[call(id=id_, server="demo") for id_ in CALLS]),
        "GetTask": get("task", tasks, lambda id_: task_pb2.GetTaskResponse(task=task(id=id_))),
        "ListTasks": lambda _: task_pb2.ListTasksResponse(tasks=[task(id=id_) for id_ in tasks]),
        "GetPendingRequest": get(
            "request", requests, lambda id_: inbox_pb2.GetPendingRequestResponse(pending_request=asked(id_))
        ),
        "ListPendingRequests": lambda _: inbox_pb2.ListPendingRequestsResponse(
            pending_requests=[asked(id_) for id_ in requests]
        ),
    }
    return hub


def asked(id_: str) -> Any:
    return inbox_pb2.PendingRequest(id=id_, server="demo", kind=1, state=1)


@pytest.mark.parametrize(
    ("words", "whole"),
    [
        (("calls", "get", "d"), "dinner"),
        (("calls", "show", "lunc"), "lunch"),
        (("inbox", "show", "req_14"), "req_14ab"),
        (("tasks", "get", "t10"), "t10"),
    ],
)
async def test_the_beginning_of_one_id_is_that_id(kitchen: Any, typed: Any, words: tuple[str, ...], whole: str) -> None:
    ran = await typed(*words, "--json")
    assert (ran.status, ran.err) == (0, "")
    assert ran.lines[0]["id"] == whole
    told = await typed(*words)
    assert (f"{words[-1]} is the " in told.err) == (words[-1] != whole)


async def test_a_whole_id_costs_one_request_also_if_it_is_the_beginning_of_another(kitchen: Any, typed: Any) -> None:
    ran = await typed("tasks", "get", "t1", "--json")
    assert ran.lines[0]["id"] == "t1"
    assert [name for name, *_ in kitchen.seen] == ["GetTask"]


async def test_the_beginning_of_several_ids_is_refused_with_a_line_on_each(kitchen: Any, typed: Any) -> None:
    ran = await typed("calls", "get", "lun")
    assert ran.status == 2
    first, *lines = ran.err.splitlines()
    assert first == "error: 'lun' is the beginning of 2 calls; write more of the id"
    assert [line.split()[:2] for line in lines[:2]] == [["lunch", "demo"], ["lunar", "demo"]]
    as_json = await typed("calls", "get", "lun", "--json")
    assert (as_json.status, as_json.error["reason"]) == (2, "USAGE")
    assert [request.id for request in kitchen.requests("GetCall")] == ["lun", "lun"]


async def test_of_many_only_some_are_shown(kitchen: Any, typed: Any) -> None:
    many = [call_pb2.Call(id=f"lun{number}") for number in range(40)]
    kitchen.replies["ListCalls"] = lambda _: call_pb2.ListCallsResponse(calls=many)
    ran = await typed("calls", "get", "lun")
    assert ran.err.splitlines()[11] == "  and 30 more: hubbub calls list"


async def test_what_no_id_begins_with_is_refused_as_before(kitchen: Any, typed: Any) -> None:
    ran = await typed("calls", "get", "breakfast", "--json")
    assert (ran.status, ran.error["reason"], ran.error["metadata"]) == (1, "CALL_NOT_FOUND", {"call": "breakfast"})


async def test_a_hub_that_does_not_list_leaves_the_error_as_it_is(kitchen: Any, typed: Any, refusal: Any) -> None:
    def refuse(_: Any) -> Any:
        raise refusal("PERMISSION_DENIED", "PERMISSION_DENIED", "you may not")

    kitchen.replies["ListCalls"] = refuse
    ran = await typed("calls", "get", "lun")
    assert ran.status == 1
    assert ran.err.startswith("error: no call 'lun' (CALL_NOT_FOUND)\n")
    assert "you may not" not in ran.err


async def test_looking_twice_disturbs_nothing_in_a_process_of_its_own(kitchen: Any, hubbub: Any) -> None:
    """gRPC serves one loop in a process: a second one gets events of the first, and says so on stderr."""
    for _ in range(5):
        ran = await hubbub("calls", "get", "lunc", json=False)
        assert (ran.status, ran.err) == (0, "lunc is the call lunch\n")
