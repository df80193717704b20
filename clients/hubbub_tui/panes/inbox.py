"""The pane of the inbox: open pending requests, and their history."""

from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from hubbub_client.data.records import PendingRequest
from hubbub_frontend.display import text
from hubbub_frontend.display.call_details import fetch_asking_call
from hubbub_frontend.display.hosts import fetch_waiting_host
from hubbub_frontend.display.records import outcome, relative_time
from hubbub_frontend.display.text import DetailText
from hubbub_tui.boards import Board, BoardRow
from hubbub_tui.panes.pane import ListPane
from hubbub_tui.screens.dialogs import DEFAULT_REFUSAL
from hubbub_tui.screens.question import render_request, styled_kind
from hubbub_tui.widgets.table import Column

FOREVER = datetime.max.replace(tzinfo=UTC)


def render_question(row: BoardRow[PendingRequest]) -> Text:
    """Return the question in bold, after who is answering it or that its call is over."""
    holder = render_holder(row.record)
    return Text.assemble(holder, "  " if holder else "", (text.line(row.about), "bold"))


def render_holder(request: PendingRequest) -> Text:
    """Return who has claimed (is answering) a pending request, or else that its call is over; empty for neither."""
    if request.claim and request.claim.host:
        return Text(f"held for {text.line(request.claim.host, 20)}", style="magenta")
    if request.claim and request.claim.by:
        return Text(f"✎ {text.line(request.claim.by, 20)}", style="magenta")
    return Text("call over", style="red") if request.cause_ended else Text()


def render_time(request: PendingRequest) -> Text:
    """Return the time that is left to answer; for a request without a deadline, how long ago it was asked."""
    if request.deadline is None:
        return Text(relative_time(request.created_at), style="dim")
    return text.time_left(request.deadline)


OPEN = (
    Column("question", render_question),
    Column("kind", lambda row: styled_kind(row.record), 8),
    Column("server", lambda row: Text(text.line(row.record.server), style="dim"), 12),
    Column("left", lambda row: render_time(row.record), 7, right=True),
)
HISTORY = (
    Column("question", lambda row: row.about),
    Column("kind", lambda row: styled_kind(row.record), 8, wide=True),
    Column("server", lambda row: Text(text.line(row.record.server), style="dim"), 12),
    Column("state", lambda row: text.styled_state(outcome(row.record)), 9),
    Column("by", lambda row: text.line(row.record.answered_by or "-"), 8),
    Column("asked", lambda row: relative_time(row.record.created_at), 7, right=True),
)


class InboxPane(ListPane):
    """Open pending requests, the most urgent first; or closed ones, the newest first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "decline", "Decline"),
        Binding("h", "history", "History"),
        Binding("h", "open", "Open questions"),
        Binding("g", "call", "Its call"),
        Binding("r", "remembered", "Remembered", show=False),
    ]
    COLUMNS = OPEN

    def __init__(self) -> None:
        super().__init__()
        self.history = False

    @property
    def board(self) -> Board[PendingRequest]:
        """Return the board of the list that is shown: the open requests, or those that have ended."""
        return self.boards.ended if self.history else self.boards.open

    def version(self) -> object:
        """Return a value that changes with the rows, and with the list that is shown."""
        return self.history, self.board.version

    def rows(self) -> Sequence[BoardRow[PendingRequest]]:
        """Return the open requests, the most urgent first; of the history, the newest first."""
        if self.history:
            return super().rows()
        return sorted(self.board.rows.values(), key=lambda row: (row.record.deadline or FOREVER, row.record.created_at))

    def summary_line(self) -> str:
        """Return how many requests the list that is shown has."""
        board = self.board
        if not board.total:
            return "Nothing was asked yet" if self.history else "Nothing waits for you"
        return board.describe_count("past request" if self.history else "open request")

    def empty_detail(self) -> Text:
        """Return what is going to be shown in an empty list."""
        if self.history:
            return DetailText().paragraph("What servers asked, and what was answered, is kept here.").text
        page = DetailText().paragraph("When a server asks something, it appears here at once.")
        page.paragraph("h shows what was asked before; 5 shows what you can call.", "dim")
        return page.text

    async def fetch_detail(self, row: BoardRow[Any]) -> Text:
        """Fetch the request, its call and the host that waits, and render them in full. Raises HubbubError."""
        hub = self.hub_app.hub
        request = await hub.inbox.get(row.key)
        host = None
        if request.state == "open" and request.call_id:
            host = await fetch_waiting_host(hub, request.call_id)
        call_row = self.boards.calls.rows.get(request.call_id or "")
        about = call_row.about if call_row else ""
        return render_request(request, about, await fetch_asking_call(hub, request), host)

    def detail_version(self, row: BoardRow[Any]) -> object:
        """Return a value that changes with the request, and once the call that asks has ended."""
        call_row = self.boards.calls.rows.get(row.record.call_id or "")
        return row, bool(call_row and call_row.record.ended)

    def search_text(self, row: BoardRow[Any]) -> str:
        """Return what the filter searches: also the kind, the state, the outcome and who answered."""
        record = row.record
        return f"{super().search_text(row)} {record.kind} {record.state} {outcome(record)} {record.answered_by or ''}"

    def select(self, key: str) -> bool:
        """Go to the list that has the request, and move the cursor to it; return False if neither list has it."""
        self._show_list(history=key in self.boards.ended.rows)
        return super().select(key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer `history` and `decline` while the open requests are shown, `open` in the history; the rest always."""
        if action in ("history", "decline"):
            return not self.history
        return self.history if action == "open" else True

    def action_history(self) -> None:
        """Show the requests that have ended."""
        self._show_list(history=True)

    def action_open(self) -> None:
        """Show the open requests."""
        self._show_list(history=False)

    def action_decline(self) -> None:
        """Decline the elicitation under the cursor, deny the call, or refuse another kind; each after a question."""
        if (row := self.current) is None:
            return
        about, server = text.line(row.about, 100), text.line(row.record.server)
        inbox = self.hub_app.hub.inbox
        if row.record.kind.startswith("elicitation"):
            question = f"Decline this question of {server}?\n\n{about}"
            self.hub_app.confirm(question, lambda: self._show_accepted(inbox.answer(row.key, decline=True)), "")
        elif row.record.kind == "approval":
            question = f"Deny this call? (Open it to give a reason.)\n\n{about}"
            self.hub_app.confirm(question, lambda: self._show_accepted(inbox.deny(row.key)), "")
        else:
            question = f"Refuse this request of {server}? (Open it to give a reason.)\n\n{about}"
            self.hub_app.confirm(
                question, lambda: self._show_accepted(inbox.answer(row.key, reject=DEFAULT_REFUSAL)), ""
            )

    async def _show_accepted(self, answering: Awaitable[PendingRequest]) -> None:
        """Wait until an answer is accepted, and show it. Raises HubbubError."""
        self.hub_app.show_outcome(await answering)

    def action_remembered(self) -> None:
        """Show the approvals that are remembered, to revoke them."""
        self.hub_app.show_remembered()

    def action_call(self) -> None:
        """Show the call that caused the request under the cursor; notify if no call is known."""
        if (row := self.current) is not None:
            self.show_related("calls", row.record.call_id, "no call is known to have caused it")

    def open_row(self, row: BoardRow[Any]) -> None:
        """Open an open request to answer it; of an ended request, show the detail."""
        if row.record.state == "open":
            self.hub_app.open_request(row.key)
        else:
            super().open_row(row)

    def _show_list(self, *, history: bool) -> None:
        """Show the ended pending requests, or the open ones."""
        if history != self.history:
            self.history = history
            self.table.set_columns(HISTORY if history else OPEN)
            self.refresh_rows(at_once=True)
            self.refresh_bindings()
