"""The pane of calls: their states, what they wait for, their results."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from hubbub_client.data.hosts import ConnectedHost
from hubbub_client.data.records import CALL_ENDED, Call, PendingRequest, Progress
from hubbub_client.hub import Hub
from hubbub_client.payload import as_object
from hubbub_frontend.display import content, text
from hubbub_frontend.display.call_details import add_call_approval
from hubbub_frontend.display.hosts import fetch_waiting_host, name_and_version
from hubbub_frontend.display.records import (
    BY_APP,
    call_state,
    describe_progress,
    format_duration,
    local_datetime,
    outcome,
    relative_time,
    short_call_title,
)
from hubbub_frontend.display.text import DetailText
from hubbub_frontend.display.timeline import build_timeline
from hubbub_frontend.error_help import help_hint
from hubbub_tui.boards import Board, BoardRow, Boards
from hubbub_tui.panes.pane import ListPane
from hubbub_tui.widgets.table import Column

BAR_WIDTH = 24
MAX_REQUESTS = 200


async def fetch_call_text(hub: Hub, id_: str, boards: Boards) -> tuple[Call, Text]:
    """Fetch a call, and return it with its text in full. Raises HubbubError."""
    call = await hub.calls.get(id_)
    requests = await hub.inbox.list(call_id=id_, limit=MAX_REQUESTS) if call.ended and call.pending_ids else ()
    host = None if call.ended else await fetch_waiting_host(hub, id_)
    return call, render_call(call, boards, requests, host)


def render_call(
    call: Call, boards: Boards, requests: Sequence[PendingRequest] = (), host: ConnectedHost | None = None
) -> Text:
    """Render a call in full.

    `requests` are the pending requests that an ended call caused: its timeline needs them. `host` is the host that
    waits for the call, if there is one.
    """
    page = DetailText().defect(call.defect).fact("state", styled_call_state(call))
    progress = boards.progress.get(call.id)
    if progress is not None and not call.ended:
        page.fact("progress", render_progress(progress))
    if call.error:
        page.fact("error", f"{call.error.code} ({call.error.category})", "red").fact("says", call.error.message, "red")
        page.fact("help", help_hint(call.error.code, call.error.help_url))
    _add_requests(page, call, boards)
    if call.result is not None:
        _add_result(page, call)
    page.heading("Call").fact("what", short_call_title(call)).fact("method", call.method).fact("server", call.server)
    page.fact("task", call.task_id).fact("host", host and name_and_version(host))
    page.fact("made by", BY_APP if call.origin and call.origin.app else None)
    page.fact("came", local_datetime(call.created_at))
    if call.completed_at is not None:
        timeline = build_timeline(call, requests, call.completed_at)
        page.fact("took", f"{format_duration(timeline.total_s)}: {timeline.summary}")
    page.fact("id", call.id)
    if call.params:
        page.heading("Params").json(call.params)
    add_call_approval(page, call)
    return page.text


def waiting_version(call: Call, boards: Boards) -> object:
    """Return a value that changes with what a call waits for."""
    states = [request.state if (request := boards.request(id_)) else "" for id_ in call.pending_ids]
    return boards.progress.get(call.id), states, boards.candidate_requests(call)


def styled_call_state(call: Call) -> Text:
    """Return the state of a call in its colour; `perhaps waiting` if it may have caused an open pending request."""
    return text.styled_state(call_state(call))


def render_progress(progress: Progress) -> Text:
    """Return progress, as a bar if there is a total."""
    description = text.line(describe_progress(progress))
    if not progress.total or not math.isfinite(share := progress.progress / progress.total):
        return Text(description)
    done = round(BAR_WIDTH * min(max(share, 0), 1))
    return Text.assemble(("━" * done, "cyan"), ("━" * (BAR_WIDTH - done), "dim"), f" {description}")


def _add_requests(page: DetailText, call: Call, boards: Boards) -> None:
    """Add the requests that the call waits for, and a hint on how to answer requests that it may have caused."""
    candidates = len(boards.candidate_requests(call))
    if candidates:
        wanted = "an answer" if candidates == 1 else f"{candidates} answers"
        page.paragraph(
            f"{text.line(call.server)} waits for {wanted}, perhaps for this call: press a to answer", "yellow"
        )
    if call.pending_ids:
        page.heading("Requests")
    for id_ in call.pending_ids:
        row = boards.request_row(id_)
        if row is None:
            page.paragraph(Text.assemble("• ", "-", f"  {text.line(id_)}"))
            continue
        request = row.record
        by = f" by {text.line(request.answered_by)}" if request.answered_by else ""
        page.paragraph(Text.assemble("• ", text.styled_state(outcome(request)), by, f"  {row.about}"))
        if call.state == "waiting_input" and request.state == "open":
            page.paragraph("  press a to answer it", "dim")


def _add_result(page: DetailText, call: Call) -> None:
    """Show the result as text if its method is known; show it as JSON if there is no text, or structured content."""
    result = as_object(call.result)
    failed = bool(result.get("isError"))
    page.heading("Result, which the tool says is an error" if failed else "Result")
    described = content.describe_result(call.method, result)
    page.paragraph(described, "red" if failed else "")
    if not described or "structuredContent" in result:
        page.json(result.get("structuredContent", call.result))


class CallsPane(ListPane):
    """Calls, newest first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "answer", "Answer"),
        Binding("c", "again", "Call again"),
        Binding("x", "cancel", "Cancel"),
        Binding("X", "clear_queue", "Clear queue", show=False),
        Binding("g", "task", "Its task", show=False),
    ]
    COLUMNS = (
        Column("came", lambda row: relative_time(row.record.created_at), 8),
        Column("server", lambda row: row.record.server, 12),
        Column("call", lambda row: row.about),
        Column("asks", lambda row: str(len(row.record.pending_ids) or "-"), 4, wide=True),
        Column("state", lambda row: styled_call_state(row.record), 15),
    )

    @property
    def board(self) -> Board[Any]:
        """Return the board of calls."""
        return self.boards.calls

    def summary_line(self) -> str:
        """Return how many calls there are, and how many have not ended."""
        if not self.board.total:
            return "No calls yet"
        going = sum(row.record.state not in CALL_ENDED for row in self.board.rows.values())
        return f"{self.board.describe_count('call')} · {going} not ended"

    def empty_detail(self) -> Text:
        """Return how to make the first call."""
        return DetailText().paragraph("5 shows what can be called; enter on a tool calls it.").text

    def search_text(self, row: BoardRow[Any]) -> str:
        """Return what the filter searches: also the state, both of the record and as the table shows it."""
        return f"{super().search_text(row)} {row.record.state} {call_state(row.record)}"

    def open_row(self, row: BoardRow[Any]) -> None:
        """Open the screen of the call."""
        self.hub_app.show_call(row.key)

    def detail_version(self, row: BoardRow[Any]) -> object:
        """Return a value that changes with the call, and with what it waits for."""
        return row, waiting_version(row.record, self.boards)

    async def fetch_detail(self, row: BoardRow[Any]) -> Text:
        """Fetch the call and render it in full. Raises HubbubError."""
        return (await fetch_call_text(self.hub_app.hub, row.key, self.boards))[1]

    def action_answer(self) -> None:
        """Open the pending request that the call under the cursor waits for."""
        if (row := self.current) is not None:
            self.hub_app.open_request_of(row.record)

    def action_again(self) -> None:
        """Open the form that makes the call under the cursor again."""
        if (row := self.current) is not None:
            self.hub_app.open_repeated_call(row.key)

    def action_cancel(self) -> None:
        """Cancel the call under the cursor, after a question."""
        if (row := self.current) is not None:
            self.hub_app.cancel_call(row.record, row.about)

    def action_clear_queue(self) -> None:
        """Cancel all queued calls of the same server, after a question."""
        if (row := self.current) is not None:
            self.hub_app.clear_queue(row.record.server)

    def action_task(self) -> None:
        """Show the task that the call became."""
        if (row := self.current) is not None:
            self.show_related("tasks", row.record.task_id, "this call is no task")
