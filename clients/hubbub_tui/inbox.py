"""The pane of the inbox: open pending requests, and their history."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from hubbub_client.records import PendingRequest
from hubbub_frontend import text
from hubbub_frontend.hosts import host_of
from hubbub_frontend.questions import asked
from hubbub_frontend.wording import relative
from hubbub_tui.boards import Board, Row
from hubbub_tui.pane import ListPane
from hubbub_tui.table import Column

FOREVER = datetime.max.replace(tzinfo=UTC)
KINDS = {"elicitation_form": "form", "elicitation_url": "page", "sampling": "sampling", "roots": "roots"}

OPEN = (
    Column("left", lambda row: text.remaining(row.record.deadline), 5),
    Column("kind", lambda row: KINDS.get(row.record.kind, "-"), 8),
    Column("server", lambda row: row.record.server, 12),
    Column("asks", lambda row: row.about),
    Column("taken by", lambda row: holder(row.record), 10),
)
HISTORY = (
    Column("kind", lambda row: KINDS.get(row.record.kind, "-"), 8),
    Column("server", lambda row: row.record.server, 12),
    Column("asked", lambda row: row.about),
    Column("asked at", lambda row: relative(row.record.created_at), 8, wide=True),
    Column("state", lambda row: text.state(row.record.state), 9),
    Column("by", lambda row: text.line(row.record.answered_by or "-"), 10),
)


def holder(request: PendingRequest) -> Text:
    """Return who has claimed a pending request, or that its call is over."""
    by = request.claim.by if request.claim else None
    if not by and request.cause_ended:
        return Text("call over", style="red")
    return Text(f"✎ {text.line(by)}", style="magenta") if by else Text("-", style="dim")


class InboxPane(ListPane):
    """Open pending requests, the most urgent first; or closed ones, the newest first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("h", "history", "Open/History"),
        Binding("g", "call", "Its call"),
    ]
    COLUMNS = OPEN

    def __init__(self) -> None:
        super().__init__()
        self.history = False

    @property
    def board(self) -> Board[PendingRequest]:
        return self.boards.ended if self.history else self.boards.open

    def version(self) -> object:
        return self.history, self.board.version

    def rows(self) -> Sequence[Row[PendingRequest]]:
        rows = self.board.rows.values()
        if self.history:
            return sorted(rows, key=lambda row: row.record.created_at, reverse=True)
        return sorted(rows, key=lambda row: (row.record.deadline or FOREVER, row.record.created_at))

    def summary(self) -> str:
        board = self.board
        if not board.total:
            return "Nothing was asked yet" if self.history else "Nothing waits for you · h shows what was answered"
        return board.counted("past request" if self.history else "open request")

    async def detail(self, row: Row[Any]) -> Text:
        hub = self.hub_app.hub
        request = await hub.inbox.get(row.key)
        host = await host_of(hub, request.call_id) if request.state == "open" and request.call_id else None
        return asked(request, host)

    def words(self, row: Row[Any]) -> str:
        record = row.record
        return f"{super().words(row)} {record.kind} {record.state} {record.answered_by or ''}"

    def select(self, key: str) -> bool:
        self._turn(key in self.boards.ended.rows)
        return super().select(key)

    def action_history(self) -> None:
        """Switch between open and closed pending requests."""
        self._turn(not self.history)

    def action_call(self) -> None:
        """Show the call that caused it."""
        row = self.current
        if row is not None and row.record.call_id:
            self.hub_app.show("calls", row.record.call_id)
        elif row is not None:
            self.notify("no call is known to have caused it")

    def open_row(self, row: Row[Any]) -> None:
        if row.record.state == "open":
            self.hub_app.open_request(row.key)
        else:
            super().open_row(row)

    def _turn(self, history: bool) -> None:
        if history != self.history:
            self.history = history
            self.table.use(HISTORY if history else OPEN)
            self.refresh_rows(at_once=True)
