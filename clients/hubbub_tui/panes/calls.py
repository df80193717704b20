"""The pane of calls: their states, what they wait for, their results."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from hubbub_client.data.records import CALL_ENDED, Call, ConnectedHost, PendingRequest, Progress
from hubbub_client.hub import Hub
from hubbub_client.payload import as_object
from hubbub_frontend.display import content, text
from hubbub_frontend.display.hosts import fetch_waiting_host, name_and_version
from hubbub_frontend.display.records import (
    call_state,
    describe_progress,
    format_duration,
    local_datetime,
    outcome,
    relative_time,
)
from hubbub_frontend.display.text import DetailText
from hubbub_frontend.display.timeline import build_timeline
from hubbub_frontend.error_help import help_hint
from hubbub_tui.boards import Board, BoardRow, Boards, called
from hubbub_tui.panes.pane import ListPane
from hubbub_tui.widgets.table import Column

SPOKEN = frozenset(("tools/call", "resources/read", "prompts/get", "completion/complete"))
BAR_WIDTH = 24
MAX_ASKED = 200


async def call_in_full(hub: Hub, id_: str, boards: Boards) -> tuple[Call, Text]:
    """Fetch a call and render it in full. Raises HubbubError."""
    call = await hub.calls.get(id_)
    asked = await hub.inbox.list(call_id=id_, limit=MAX_ASKED) if call.ended and call.pending_ids else ()
    host = None if call.ended else await fetch_waiting_host(hub, id_)
    return call, call_text(call, boards, asked, host)


def call_text(
    call: Call, boards: Boards, asked: Sequence[PendingRequest] = (), host: ConnectedHost | None = None
) -> Text:
    """Render a call in full; `asked` are the pending requests that it caused, once it has ended; `host` waits."""
    page = DetailText().defect(call.defect).fact("state", standing(call))
    progress = boards.progress.get(call.id)
    if progress is not None and not call.ended:
        page.fact("progress", bar(progress))
    if call.error:
        page.fact("error", f"{call.error.code} ({call.error.category})", "red").fact("says", call.error.message, "red")
        page.fact("help", help_hint(call.error.code, call.error.help_url))
    _requests(page, call, boards)
    _result(page, call)
    page.heading("Call").fact("what", called(call)).fact("method", call.method).fact("server", call.server)
    page.fact("task", call.task_id).fact("host", host and name_and_version(host))
    page.fact("came", local_datetime(call.created_at)).fact("took", _took(call, asked)).fact("id", call.id)
    if call.params:
        page.heading("Params").json(call.params)
    return page.text


def waits_for(call: Call, boards: Boards) -> object:
    """Return a value that changes with what a call waits for."""
    asked = [request.state if (request := boards.request(id_)) else "" for id_ in call.pending_ids]
    return boards.progress.get(call.id), asked, boards.perhaps_of(call)


def standing(call: Call) -> Text:
    """Return the state of a call; one that may have caused an open pending request is perhaps waiting."""
    return text.styled_state(call_state(call))


def bar(progress: Progress) -> Text:
    """Return progress, as a bar if there is a total."""
    if not progress.total or not math.isfinite(share := progress.progress / progress.total):
        return Text(text.line(describe_progress(progress)))
    done = round(BAR_WIDTH * min(max(share, 0), 1))
    return Text.assemble(
        ("━" * done, "cyan"), ("━" * (BAR_WIDTH - done), "dim"), f" {text.line(describe_progress(progress))}"
    )


def _requests(page: DetailText, call: Call, boards: Boards) -> None:
    asked = len(boards.perhaps_of(call))
    if asked:
        wanted = "an answer" if asked == 1 else f"{asked} answers"
        page.paragraph(
            f"{text.line(call.server)} waits for {wanted}, perhaps for this call: press a to answer", "yellow"
        )
    if not call.pending_ids:
        return
    page.heading("Requests")
    for id_ in call.pending_ids:
        request, row = boards.request(id_), boards.open.rows.get(id_) or boards.ended.rows.get(id_)
        where = text.styled_state(outcome(request)) if request else Text("-")
        by = f" by {text.line(request.answered_by)}" if request and request.answered_by else ""
        page.paragraph(Text.assemble("• ", where, by, f"  {row.about if row else text.line(id_)}"))
        if call.state == "waiting_input" and request and request.state == "open":
            page.paragraph("  press a to answer it", "dim")


def _result(page: DetailText, call: Call) -> None:
    if call.result is None:
        return
    result = as_object(call.result)
    failed = bool(result.get("isError"))
    page.heading("Result, which the tool says is an error" if failed else "Result")
    spoken = content.describe_result(call.method, result) if call.method in SPOKEN else ""
    page.paragraph(spoken, "red" if failed else "")
    if not spoken or "structuredContent" in result:
        page.json(result.get("structuredContent", call.result))


def _took(call: Call, asked: Sequence[PendingRequest]) -> str | None:
    if call.completed_at is None:
        return None
    line = build_timeline(call, asked, call.completed_at)
    return f"{format_duration(line.total_s)}: {line.summary}"


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
        Column("state", lambda row: standing(row.record), 15),
    )

    @property
    def board(self) -> Board[Any]:
        return self.boards.calls

    def rows(self) -> Sequence[BoardRow[Call]]:
        return sorted(self.board.rows.values(), key=lambda row: row.record.created_at, reverse=True)

    def summary(self) -> str:
        board = self.board
        going = sum(row.record.state not in CALL_ENDED for row in board.rows.values())
        if not board.total:
            return "No calls yet"
        return f"{board.counted('call')} · {going} not ended"

    def nothing(self) -> Text:
        return DetailText().paragraph("5 shows what can be called; enter on a tool calls it.").text

    def words(self, row: BoardRow[Any]) -> str:
        return f"{super().words(row)} {row.record.state} {call_state(row.record)}"

    def open_row(self, row: BoardRow[Any]) -> None:
        self.hub_app.show_call(row.key)

    def aspect(self, row: BoardRow[Any]) -> object:
        return row, waits_for(row.record, self.boards)

    async def detail(self, row: BoardRow[Any]) -> Text:
        return (await call_in_full(self.hub_app.hub, row.key, self.boards))[1]

    def action_answer(self) -> None:
        """Open the pending request that the call waits for."""
        if (row := self.current) is not None:
            self.hub_app.answer_for(row.record)

    def action_again(self) -> None:
        """Open the form of what was called, filled in as before."""
        if (row := self.current) is not None:
            self.hub_app.call_again(row.key)

    def action_cancel(self) -> None:
        """Cancel the call."""
        if (row := self.current) is not None:
            self.hub_app.cancel_call(row.record, row.about)

    def action_clear_queue(self) -> None:
        """Cancel the queued calls of its server."""
        if (row := self.current) is not None:
            self.hub_app.clear_queue(row.record.server)

    def action_task(self) -> None:
        """Show the task that the call became."""
        row = self.current
        if row is not None and row.record.task_id:
            self.hub_app.show("tasks", row.record.task_id)
        elif row is not None:
            self.notify("this call is no task")
