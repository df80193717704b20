"""Tables of the command line: without a terminal they are laid out without rich, as rich does it."""

import json
from typing import Any

import pytest

from hubbub.v1 import call_pb2, common_pb2, inbox_pb2
from hubbub_cli.output import printer
from hubbub_client.data.catalog import CatalogEntry


def entries(*rows: tuple[str, str | None]) -> list[Any]:
    return [
        CatalogEntry(server=server, kind="tool", object={"name": "echo", "description": about})
        for server, about in rows
    ]


def printed(records: list[Any], capsys: pytest.CaptureFixture[str]) -> str:
    printer.print_records(CatalogEntry, records, as_json=False)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "about",
    [
        "Echoes",
        "",
        "[bold]no markup[/bold] :smile:",
        "two\nlines",
        "a\tb \x1b[2J",
        "x" * 150,
        "x" * 300,
        "gr\u00fc\u00df dich",
        "\u4f60\u597d",
    ],
)
def test_a_table_for_a_pipe_is_as_rich_lays_it_out(
    about: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = entries(("demo", about), ("a-longer-name", "Adds"), ("x", None))
    plain = printed(records, capsys)
    monkeypatch.setattr(printer, "lay_out_plain_table", lambda names, rows: None)
    assert plain == printed(records, capsys)


def test_only_rich_lays_out_wide_letters_and_long_lines() -> None:
    assert printer.lay_out_plain_table(["id", "name"], [["1", "echo"]]) == "id  name\n1   echo\n"
    assert printer.lay_out_plain_table(["id"], [["\u4f60"]]) is None
    assert printer.lay_out_plain_table(["id", "name"], [["1", "x" * printer.PIPE_WIDTH]]) is None


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_colours_that_the_environment_asks_for_are_left_to_rich(
    variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "1")
    assert "\x1b[1m" in printed(entries(("demo", "Echoes")), capsys)


COLOURS = {"green": "\x1b[32m", "red": "\x1b[31m", "yellow": "\x1b[33m", "dim": "\x1b[2m"}
ACCEPTED = {"action": "accept", "content": {}}


def coloured(shown: str) -> str:
    """A word in a colour, as a terminal gets it: `red declined`."""
    colour, _, word = shown.partition(" ")
    return f"{COLOURS[colour]}{word}"


@pytest.mark.parametrize(
    ("state", "answer", "delivery", "shown"),
    [
        ("OPEN", None, "UNSPECIFIED", "yellow open"),
        ("ANSWERED", ACCEPTED, "DELIVERED", "green answered"),
        ("ANSWERED", ACCEPTED, "LATE", "yellow late"),
        ("ANSWERED", {"action": "decline"}, "DELIVERED", "red declined"),
        ("ANSWERED", {"action": "cancel"}, "DELIVERED", "dim dismissed"),
        ("ANSWERED", {"error": {"code": -1, "message": "no"}}, "DELIVERED", "red refused"),
        ("EXPIRED", None, "DELIVERED", "red expired"),
        ("WITHDRAWN", None, "NONE", "red withdrawn"),
    ],
)
async def test_the_inbox_says_what_came_of_a_question_in_words_and_colours(
    state: str, answer: Any, delivery: str, shown: str, hub: Any, typed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = inbox_pb2.PendingRequest(
        id="req_1",
        server="demo",
        kind=inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM,
        state=inbox_pb2.PendingRequestState.Value(f"PENDING_REQUEST_STATE_{state}"),
        delivery=inbox_pb2.DeliveryState.Value(f"DELIVERY_STATE_{delivery}"),
        answer=b"" if answer is None else json.dumps(answer).encode(),
    )
    hub.replies["ListPendingRequests"] = lambda _: inbox_pb2.ListPendingRequestsResponse(pending_requests=[request])
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert coloured(shown) in (await typed("inbox", "list")).out


@pytest.mark.parametrize(
    ("state", "result", "shown"),
    [
        ("COMPLETED", {"content": []}, "green completed"),
        ("COMPLETED", {"content": [], "isError": True}, "red tool error"),
        ("FAILED", None, "red failed"),
    ],
)
async def test_the_list_of_calls_says_what_came_of_a_call_in_words_and_colours(
    state: str, result: Any, shown: str, hub: Any, typed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = call_pb2.Call(
        id="call_1",
        server="demo",
        method="tools/call",
        state=call_pb2.CallState.Value(f"CALL_STATE_{state}"),
        result=b"" if result is None else json.dumps(result).encode(),
        error=None if result else common_pb2.Fault(code="CALL_TIMEOUT"),
    )
    hub.replies["ListCalls"] = lambda _: call_pb2.ListCallsResponse(calls=[call])
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert coloured(shown) in (await typed("calls", "list")).out
