"""The pane of tasks: receiver tasks, held by the hub for servers, and client tasks, held by servers for the hub."""

from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from hubbub_client.data.records import Task
from hubbub_client.errors import HubbubError
from hubbub_frontend.display import text
from hubbub_frontend.display.records import local_datetime, relative_time
from hubbub_frontend.display.text import DetailText
from hubbub_tui.boards import Board, BoardRow
from hubbub_tui.panes.pane import ListPane
from hubbub_tui.widgets.table import Column

ENDED = frozenset(("completed", "failed", "cancelled"))


class TasksPane(ListPane):
    """Tasks of both roles, newest first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "answer", "Answer"),
        Binding("x", "cancel", "Cancel"),
        Binding("g", "call", "Its call"),
    ]
    COLUMNS = (
        Column("came", lambda row: relative_time(row.record.created_at), 8),
        Column("server", lambda row: row.record.server, 12),
        Column("held by", lambda row: "hub" if row.record.role == "receiver" else "server", 7),
        Column("method", lambda row: text.line(row.record.method or "-")),
        Column("status", lambda row: text.styled_state(row.record.status), 14),
        Column("changed", lambda row: relative_time(row.record.last_updated_at), 8, wide=True),
    )

    @property
    def board(self) -> Board[Any]:
        """Return the board of tasks."""
        return self.boards.tasks

    def summary_line(self) -> str:
        """Return how many tasks there are, and how many have not ended."""
        if not self.board.total:
            return "No tasks yet"
        going = sum(row.record.status not in ENDED for row in self.board.rows.values())
        return f"{self.board.describe_count('task')} · {going} not ended"

    def empty_detail(self) -> Text:
        """Return what is going to be shown here."""
        return DetailText().paragraph("Work that takes longer, and whose result is fetched later, is shown here.").text

    def search_text(self, row: BoardRow[Any]) -> str:
        """Return what the filter searches: also the role, the status and the method."""
        return f"{super().search_text(row)} {row.record.role} {row.record.status} {row.record.method}"

    async def fetch_detail(self, row: BoardRow[Any]) -> Text:
        """Render the task in full. Fetch the result of a completed or failed task, or show why it cannot be fetched."""
        task: Task = row.record
        page = (
            DetailText()
            .defect(task.defect)
            .fact("status", text.styled_state(task.status))
            .fact("says", task.status_message)
        )
        page.fact("role", f"{task.role}: held by {'the hub' if task.role == 'receiver' else 'the server'}")
        page.fact("server", task.server).fact("method", task.method).fact("call", task.call_id)
        page.fact("came", local_datetime(task.created_at)).fact("changed", local_datetime(task.last_updated_at))
        page.fact("lives", f"{task.ttl_ms / 1000:g} s" if task.ttl_ms is not None else None)
        page.fact("poll every", f"{task.poll_interval_ms / 1000:g} s" if task.poll_interval_ms is not None else None)
        page.fact("asks", ", ".join(task.pending_ids)).fact("id", task.id)
        if task.status in ("completed", "failed"):
            try:
                page.heading("Result").json(await self.hub_app.hub.tasks.result(task.id))
            except HubbubError as error:
                page.paragraph(f"{error.message} ({error.reason})", "red")
        return page.text

    def action_answer(self) -> None:
        """Open the first open request that the task under the cursor waits for."""
        if (row := self.current) is not None:
            self.hub_app.open_first_open(row.record.pending_ids)

    def action_cancel(self) -> None:
        """Cancel the task under the cursor, after a question; only notify if it has ended."""
        row = self.current
        if row is None:
            return
        if row.record.status in ENDED:
            self.notify("this task has ended")
            return
        question = f"Cancel the task {text.line(row.key)} of {text.line(row.record.server)}?"
        self.hub_app.confirm(question, lambda: self.hub_app.hub.tasks.cancel(row.key), "cancellation asked for")

    def action_call(self) -> None:
        """Show the call that caused the task under the cursor; notify if no call is known."""
        if (row := self.current) is not None:
            self.show_related("calls", row.record.call_id, "no call is known to have caused it")
