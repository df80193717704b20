"""What the hub says of causes, of ends that come too late, of servers that were given up: drawn from the fields."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from hubbub.v1 import call_pb2, inbox_pb2, server_pb2
from hubbub_client.data import conversion
from hubbub_client.data.records import Call, Moment, PendingRequest, Server
from hubbub_frontend.display.questions import render_request
from hubbub_tui.boards import Boards
from hubbub_tui.panes.calls import render_call, styled_call_state
from hubbub_tui.panes.inbox import render_holder
from hubbub_tui.panes.servers import ServersPane


def question(**given: Any) -> PendingRequest:
    """An open question."""
    message = inbox_pb2.PendingRequest(
        id="r1",
        server="one",
        kind=inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM,
        state=inbox_pb2.PENDING_REQUEST_STATE_OPEN,
        request=b'{"message":"Well?"}',
        **given,
    )
    message.created_at.FromDatetime(datetime.now(UTC))
    return conversion.read(PendingRequest, message)


def called(**given: Any) -> Call:
    """A call at work."""
    message = call_pb2.Call(id="c1", server="one", method="tools/call", **({"state": 2} | given))
    message.created_at.FromDatetime(datetime.now(UTC))
    return conversion.read(Call, message)


@pytest.fixture
def boards() -> Boards:
    """What the screen keeps, of no hub."""
    return Boards(None, 10)  # pyright: ignore[reportArgumentType] - nothing is asked of it


def test_a_question_names_the_calls_of_which_one_has_led_to_it() -> None:
    shown = render_request(question(candidate_call_ids=["haiku", "sign-up"])).plain
    assert "one of haiku, sign-up" in shown
    many = render_request(question(candidate_call_ids=[f"c{n}" for n in range(10)])).plain
    assert "one of c0, c1, c2, c3, c4, c5, c6, c7 and 2 more" in many
    assert "perhaps haiku" in render_request(question(candidate_call_ids=["haiku"])).plain


def test_a_question_whose_call_is_over_says_so_in_the_list_and_above_it() -> None:
    over = question(cause_ended="its call was \x1bcancelled")
    assert render_holder(over).plain == "call over"
    shown = render_request(over).plain
    assert "its call was" in shown
    assert "an answer may come too late" in shown
    assert "\x1b" not in shown
    ended = render_request(question(cause_ended="cancelled", call_id="c1")).plain
    assert "an answer may come too late" in ended


def test_an_answer_that_came_too_late_is_not_said_to_be_delivered() -> None:
    late = question(delivery=inbox_pb2.DELIVERY_STATE_LATE)
    moment = Moment(at=late.created_at, what="delivered", by=None, agent=False)
    shown = render_request(replace(late, state="answered", moments=(moment,))).plain
    assert "late: the call that asked was over already" in shown
    assert "delivered too late" in shown


def test_a_call_that_perhaps_waits_says_so_and_which_questions_count(boards: Boards) -> None:
    call = called(perhaps_pending_request_ids=["r1"])
    assert styled_call_state(call).plain == "perhaps waiting"
    assert styled_call_state(called()).plain == "in progress"
    boards._put_request(question(candidate_call_ids=["c1", "c2"]))
    assert boards.candidate_requests(call) == ["r1"]
    assert boards.candidate_requests(called(state=call_pb2.CALL_STATE_COMPLETED)) == []
    assert "one waits for an answer, perhaps for this call" in render_call(call, boards).plain
    boards._put_request(question(candidate_call_ids=["c2", "c3"]))
    assert boards.candidate_requests(called()) == []
    assert boards.candidate_requests(called(state=call_pb2.CALL_STATE_COMPLETED)) == []


def test_what_cannot_be_shown_whole_is_marked(boards: Boards) -> None:
    call = called(defect="its params are no JSON")
    boards._put_call_or_progress(call)
    boards._put_request(question(defect="its deadline is no time"))
    assert boards.calls.rows["c1"].about.startswith("(not whole)")
    assert boards.open.rows["r1"].about == "(not whole) Well?"
    assert "its params are no JSON" in render_call(call, boards).plain
    assert "its deadline is no time" in render_request(question(defect="its deadline is no time")).plain


def test_a_call_of_a_page_says_so(boards: Boards) -> None:
    by_page, by_model = (called(origin=call_pb2.CallOrigin(host="h", app=app)) for app in (True, False))
    assert "a page of an app, not a model" in render_call(by_page, boards).plain
    assert "made by" not in render_call(by_model, boards).plain


async def test_a_server_that_was_given_up_says_what_brings_it_back(boards: Boards) -> None:
    server = conversion.read(Server, server_pb2.Server(name="ext", gave_up=True, defect="no such port"))
    boards._put_server(server)
    row = boards.servers.rows["ext"]
    shown = [column.cell(row) for column in ServersPane.COLUMNS]
    assert "gave up" in [getattr(each, "plain", each) for each in shown]
    assert any("c connects again" in getattr(each, "plain", str(each)) for each in shown)
    detail = (await ServersPane().fetch_detail(row)).plain
    assert "press c" in detail
    assert "no such port" in detail


async def test_what_was_noted_about_a_server_stands_in_its_detail(boards: Boards) -> None:
    boards._put_server(conversion.read(Server, server_pb2.Server(name="ext", notes=["a list leads in circles"])))
    detail = (await ServersPane().fetch_detail(boards.servers.rows["ext"])).plain
    assert "Noted\na list leads in circles" in detail
