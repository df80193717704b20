"""What watches and claims print for people: a heading, columns that stay in place, and words instead of JSON."""

import dataclasses
import io
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from hubbub.v1 import common_pb2, event_pb2, inbox_pb2
from hubbub_cli.output.watch_lines import Lines, Rows
from hubbub_client.data.catalog import CatalogList
from hubbub_client.data.records import (
    CallLog,
    Claim,
    PendingRequest,
    Progress,
    Server,
    ServerEvent,
    Task,
)
from hubbub_client.data.watch_events import Bookmark, Logged, Progressed, Removed, Reset, Synced, Upsert, WatchStep
from hubbub_frontend.display.records import describe_event, describe_request, local_time

from .conftest import staying

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Screen(io.StringIO):
    """A terminal, as a command sees it."""

    def isatty(self) -> bool:
        return True


def record(of: type[Any], /, **values: Any) -> Any:
    """A record with nothing in it but these values."""
    fields = (each for each in dataclasses.fields(of) if each.default is dataclasses.MISSING)
    return of(**{**dict.fromkeys(each.name for each in fields), **values})


def asking(**values: Any) -> PendingRequest:
    plain = {"id": "req_1", "server": "demo", "kind": "elicitation_form", "state": "open"}
    return record(PendingRequest, **{**plain, "request": {"message": "Soup\n or pie?"}, **values})


PROGRESS = Progress(call_id="lunch", progress=1.0, total=4.0, message="hot")
LOG = CallLog(call_id="lunch", params={"level": "info", "data": "hot"})


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"deadline": NOON}, f"Soup or pie? (a form, until {local_time(NOON)})"),
        ({"kind": "roots"}, "which directories may it use? (directories)"),
        ({"kind": "of_a_newer_hub"}, "Soup or pie? (of_a_newer_hub)"),
        ({"claim": Claim(id=None, by="ann", expires_at=NOON)}, "ann is answering: Soup or pie?"),
        ({"cause_ended": "its call is over"}, "its call is over, an answer may come too late: Soup or pie?"),
        ({"state": "answered", "answered_by": "a", "delivery": "delivered"}, "answered by a, delivered: Soup or pie?"),
        ({"state": "answered", "delivery": "late"}, "answered, too late: Soup or pie?"),
        ({"state": "expired", "reason": "nobody answered"}, "nobody answered: Soup or pie?"),
        ({"state": "withdrawn"}, "withdrawn: Soup or pie?"),
    ],
)  # fmt: skip
def test_a_pending_request_is_told_in_one_line(values: dict[str, Any], told: str) -> None:
    assert describe_request(asking(**values)) == told


@pytest.mark.parametrize(
    ("kind", "method", "params", "told"),
    [
        ("progress", "notifications/progress", {"progress": 1.0, "total": 4, "message": "hot"}, "1/4 hot (call c1)"),
        ("progress", "notifications/progress", {"progress": 10**400}, f"{10**400}  (call c1)"),
        ("list_changed", "notifications/tools/list_changed", {}, "its tools have changed"),
        ("resource_updated", None, {"uri": "x://y"}, "x://y has changed"),
        ("cancelled", None, {"requestId": 7, "reason": "slow"}, "it takes back its request 7: slow"),
        ("elicitation_complete", None, {"elicitationId": "e1"}, "the page of e1 is done"),
        ("task_status", None, {"taskId": "t1", "status": "input_required"}, "task t1 is input required"),
        ("log", None, {"level": "info", "data": {"a": 1}, "logger": "x"}, 'info  x: {"a": 1}'),
        ("stderr", None, {"line": "boom"}, "boom"),
        ("other", "x/y", {"a": 1}, 'x/y  {"a": 1}'),
    ],
)
def test_an_event_is_told_in_words(kind: Any, method: str | None, params: Any, told: str) -> None:
    assert describe_event(record(ServerEvent, kind=kind, method=method, params=params, call_id="c1")) == told


@pytest.mark.parametrize("params", [None, [], {"unheard": "of"}])
@pytest.mark.parametrize(
    "kind",
    ["progress", "list_changed", "resource_updated", "cancelled", "elicitation_complete", "task_status", "stderr"],
)
def test_an_event_without_what_its_kind_has_is_shown_as_it_came(kind: Any, params: Any) -> None:
    told = describe_event(record(ServerEvent, kind=kind, method="told", params=params))
    assert told == ('told  {"unheard": "of"}' if isinstance(params, dict) else "told  {}")


@pytest.mark.parametrize(
    ("step", "type_", "shown"),
    [
        (Upsert("t", asking()), "upsert", asking().to_json()),
        (Removed("t", "req_1"), "removed", {"id": "req_1"}),
        (Synced("t"), "synced", None),
        (Reset("t", "TOKEN_TOO_OLD"), "reset", {"reason": "TOKEN_TOO_OLD"}),
        (Bookmark("t"), "bookmark", None),
        (Progressed("t", PROGRESS), "progress", PROGRESS.to_json()),
        (Logged("t", LOG), "log", LOG.to_json()),
    ],
)
def test_a_step_as_json_has_its_record_or_what_stands_for_one(step: WatchStep, type_: str, shown: Any) -> None:
    assert list(step.to_json().items()) == [("type", type_), ("resume_token", "t"), ("record", shown)]


def test_columns_stay_in_place_below_one_heading(capsys: Any) -> None:
    lines = Lines(as_json=False)
    lines.print_step(Upsert("", asking()))
    lines.print_step(Upsert("", asking(id="req_12345", state="withdrawn")))
    lines.print_step(Removed("", "req_1"))
    lines.print_step(Upsert("", asking(server="a-long-name-of-a-server")))
    heading, first, second, gone, wide = capsys.readouterr().out.splitlines()
    assert heading.split() == ["time", "id", "server", "state", "what"]
    assert heading.index("server") == first.index("demo")
    assert second.index("withdrawn") == wide.index("open") - len("a-long-name-of-a-server") + len("demo    ")
    assert gone.split()[1:] == ["req_1", "is", "gone"]
    assert second.index("demo") == first.index("demo") + len("req_12345") - len("req_1")
    assert wide.index("a-long") == second.index("demo")


def test_at_a_terminal_a_long_question_is_folded_between_words_below_its_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    for name, value in (("COLUMNS", "80"), ("LINES", "24"), ("TERM", "dumb"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    address = "https://example.com/a-page-whose-address-is-longer-than-its-column"
    Lines(as_json=False).print_step(
        Upsert("", asking(request={"message": f"Which of the soups shall it be? {address}"}))
    )
    heading, *folded = screen.getvalue().splitlines()
    column = heading.index("what")
    assert folded[0][column:] == "Which of the soups shall it be?"[: len(folded[0]) - column]
    assert [line[:column].strip() for line in folded[1:]] == [""] * (len(folded) - 1)
    assert address in screen.getvalue()
    assert all(len(line) <= 80 for line in folded if address not in line)


def test_letters_that_take_two_columns_do_not_move_the_columns(capsys: Any) -> None:
    rows = Rows(("time", "name", "what"))
    rows.print(("12:00:00", "日本語", "x"))
    rows.print(("12:00:00", "abcdef", "x"))
    _, wide, narrow = capsys.readouterr().out.splitlines()
    assert wide.index("x") == narrow.index("x") - 3


def test_a_line_of_a_watch_has_no_time_that_becomes_wrong(capsys: Any) -> None:
    lines = Lines(as_json=False)
    lists = record(CatalogList, id="demo/tool", server="demo", kind="tool", freshness="fresh", count=5, fetched_at=NOON)
    lines.print_step(Upsert("", lists))
    lines.print_step(Upsert("", asking(created_at=NOON, deadline=NOON)))
    lines.print_step(Upsert("", record(Server, name="demo", state="error", next_retry_at=NOON, gave_up=False)))
    lines.print_step(Upsert("", record(Task, id="t1", server="demo", role="client", status="working", created_at=NOON)))
    printed = capsys.readouterr().out
    assert " ago" not in printed
    assert " in " not in printed.replace("in progress", "")
    assert f"  {local_time(NOON)}" in printed


@pytest.mark.parametrize("as_json", [False, True])
def test_a_watch_of_nothing_says_so_once_to_people_alone(as_json: bool, capsys: Any) -> None:
    lines = Lines("nothing is asked yet", as_json=as_json)
    lines.print_step(Synced("1"))
    lines.print_step(Reset("1", "expired"))
    lines.print_step(Synced("2"))
    shown = capsys.readouterr()
    if as_json:
        assert (shown.err, len(shown.out.splitlines())) == ("", 3)
    else:
        assert shown.out == ""
        assert shown.err.count("nothing is asked yet; Ctrl-C ends this watch") == 1


def test_a_watch_with_records_does_not_say_that_there_are_none(capsys: Any) -> None:
    lines = Lines("nothing is asked yet", as_json=False)
    lines.print_step(Upsert("", asking()))
    lines.print_step(Synced("1"))
    assert capsys.readouterr().err == ""


async def watched_until_sigint(hubbub_process: Any, noun: str) -> tuple[list[str], bytes]:
    """The first two lines of a watch, and what it says on stderr; SIGINT ends it well."""
    with anyio.fail_after(60):
        async with await hubbub_process(noun, "watch", options=()) as process:
            shown = b""
            while shown.count(b"\n") < 2:
                shown += await process.stdout.receive()
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
            return shown.decode().splitlines(), await process.stderr.receive()


async def test_the_heading_comes_with_the_first_request_and_sigint_ends_the_watch_well(
    hub: Any, hubbub_process: Any
) -> None:
    step = inbox_pb2.WatchPendingRequestsResponse

    async def script(_: Any) -> AsyncIterator[Any]:
        yield step(synced=common_pb2.WatchSynced())
        form = b'{"message":"Soup\\u001b[31m?"}'
        yield step(upsert=inbox_pb2.PendingRequest(id="req_1", server="demo", kind=1, state=1, request=form))
        await anyio.sleep_forever()

    hub.streams["WatchPendingRequests"] = script
    (heading, line), said = await watched_until_sigint(hubbub_process, "inbox")
    assert heading.split() == ["time", "id", "server", "state", "what"]
    assert line.endswith("Soup\N{REPLACEMENT CHARACTER}[31m? (a form)")
    assert b"nothing is asked yet" in said


async def test_events_have_a_heading_and_say_that_they_are_not_stored(hub: Any, hubbub_process: Any) -> None:
    response = event_pb2.WatchEventsResponse
    changed = event_pb2.ServerEvent(server="demo", kind=5, method="notifications/tools/list_changed", params=b"{}")
    assert event_pb2.EventKind.Name(5) == "EVENT_KIND_LIST_CHANGED"

    hub.streams["WatchEvents"] = staying(response(), response(event=changed))
    (heading, line), said = await watched_until_sigint(hubbub_process, "events")
    assert heading.split() == ["time", "server", "kind", "what"]
    assert line.split(maxsplit=1)[1] == "demo      list changed  its tools have changed"
    assert b"they are not stored" in said


async def test_a_claim_is_told_with_commands_that_use_it_when_pasted(hub: Any, hubbub: Any) -> None:
    held: Any = inbox_pb2.PendingRequest(id="req_1", server="demo", kind=1, state=1, request=b'{"message":"Soup?"}')
    free = inbox_pb2.PendingRequest.FromString(held.SerializeToString())
    held.claim.id, held.claim.by = "c 1", "ann"
    hub.replies["ClaimPendingRequest"] = lambda _: inbox_pb2.ClaimPendingRequestResponse(pending_request=held)
    hub.replies["RenewClaim"] = lambda _: inbox_pb2.RenewClaimResponse(pending_request=held)
    hub.replies["ReleasePendingRequest"] = lambda _: inbox_pb2.ReleasePendingRequestResponse(pending_request=free)
    first, *facts = (await hubbub("inbox", "claim", "req_1", json=False)).out.splitlines()
    assert first.startswith("req_1 is claimed by ann until ")
    assert first.endswith(": Soup?")
    pasted = {line.split("  ")[0]: shlex.split("hubbub " + line.partition(" hubbub ")[2]) for line in facts[1:]}
    for label in ("keep it", "give it back"):
        program, option, directory, *words = pasted[label]
        assert (program, option, directory) == ("hubbub", "--data-dir", str(hub.data_dir))
        ran = await hubbub(*words, json=False)
        assert ran.status == 0, ran.err
    assert hub.requests("RenewClaim")[0].claim_id == hub.requests("ReleasePendingRequest")[0].claim_id == "c 1"
    assert ran.out == "req_1 is free for anybody: Soup?\n"
    assert pasted["answer it"][-3:] == ["req_1", "--claim", "c 1"]


@pytest.mark.parametrize("words", [("--accept",), ("--decline",)])
async def test_an_answer_of_a_script_is_told_in_one_line_without_waiting_for_the_call(
    hub: Any, hubbub: Any, words: tuple[str, ...]
) -> None:
    done = inbox_pb2.PendingRequest(id="req_1", server="demo", kind=1, state=2, answered_by="ann", call_id="lunch")
    done.request, done.delivery = b'{"message":"Soup?"}', inbox_pb2.DELIVERY_STATE_PENDING
    hub.replies["AnswerPendingRequest"] = lambda _: inbox_pb2.AnswerPendingRequestResponse(pending_request=done)
    ran = await hubbub("inbox", "answer", "req_1", *words, json=False)
    assert ran.out == "req_1 is answered by ann, on its way to the server: Soup?\n"
    assert ran.err == f"what its call returns: hubbub --data-dir {hub.data_dir} calls watch lunch\n"
    assert not hub.requests("WatchCalls")
    assert (await hubbub("inbox", "answer", "req_1", *words)).lines[0]["answered_by"] == "ann"


def test_progress_and_log_lines_of_a_call_are_in_words(capsys: Any) -> None:
    lines = Lines(as_json=False)
    lines.print_step(Progressed("", record(Progress, call_id="lunch", progress=1.0, total=2.0, message="cooking")))
    lines.print_step(Logged("", record(CallLog, call_id="lunch", params={"level": "info", "data": "hot"})))
    heading, *rest = capsys.readouterr().out.splitlines()
    assert heading.split() == ["time", "id", "what"]
    assert [line.split(maxsplit=1)[1] for line in rest] == ["lunch  1/2 cooking", "lunch  info  hot"]
