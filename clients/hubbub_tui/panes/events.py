"""The pane of events and logs: what servers tell, as it happens."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, get_args

from rich.text import Text
from textual.binding import Binding, BindingType

from hubbub_client.data.records import EventKind, ServerEvent
from hubbub_frontend.display import text
from hubbub_frontend.display.records import HUB, local_datetime
from hubbub_frontend.display.text import DetailText
from hubbub_tui.boards import BoardRow
from hubbub_tui.panes.pane import ListPane
from hubbub_tui.screens.dialogs import Choose
from hubbub_tui.widgets.table import Column

STYLES = {"log": "cyan", "stderr": "yellow", "cancelled": "red", "config_problem": "red"}


class EventsPane(ListPane):
    """The last events, newest first. Events are not stored, so earlier ones are not shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "server", "Server"),
        Binding("e", "kind", "Kind"),
        Binding("p", "pause", "Pause"),
        Binding("c", "clear", "Clear", show=False),
    ]
    COLUMNS = (
        Column("at", lambda row: f"{row.record.at.astimezone():%H:%M:%S}", 8),
        Column("server", lambda row: row.record.server or HUB, 12),
        Column("kind", lambda row: Text(row.record.kind, style=STYLES.get(row.record.kind, "")), 16),
        Column("what", lambda row: row.about),
    )
    FOLLOWS = True

    def __init__(self) -> None:
        super().__init__()
        self._paused: list[BoardRow[ServerEvent]] | None = None
        self._paused_at = 0
        self._server: str | None = None
        self._kind: str | None = None

    @property
    def board(self) -> None:
        return None

    def version(self) -> object:
        return self._paused is not None, self.boards.events_seen, len(self.boards.events), self._server, self._kind

    def rows(self) -> Sequence[BoardRow[ServerEvent]]:
        rows = self._paused if self._paused is not None else list(reversed(self.boards.events))
        return [
            row for row in rows if self._server in (None, row.record.server) and self._kind in (None, row.record.kind)
        ]

    def summary(self) -> str:
        boards = self.boards
        parts = [f"the last {len(boards.events)} of {boards.events_seen} events" if boards.events else "No events yet"]
        parts += ["s, e and / choose which"] if boards.events and not (self._server or self._kind) else []
        if self._paused is not None:
            parts.append(f"PAUSED, {boards.events_seen - self._paused_at} more since")
        if boards.events_dropped:
            parts.append(f"{boards.events_dropped} lost on the way")
        chosen = [text.line(each) for each in (self._server, self._kind) if each]
        parts += [f"only {' '.join(chosen)}"] if chosen else []
        return " · ".join(parts)

    def nothing(self) -> Text:
        if self.boards.events:
            return DetailText().paragraph("Nothing fits. s and e choose server and kind; escape clears the words.").text
        page = DetailText().paragraph(
            "What servers report, such as progress and log lines, appears here as it happens."
        )
        return page.paragraph("Events are not stored: those from before this screen was opened are gone.", "dim").text

    def words(self, row: BoardRow[Any]) -> str:
        return f"{row.record.server or HUB} {row.record.kind} {row.about}"

    async def detail(self, row: BoardRow[Any]) -> Text:
        event: ServerEvent = row.record
        page = DetailText().fact("kind", event.kind).fact("server", event.server or HUB).fact("method", event.method)
        page.fact("call", event.call_id).fact("at", local_datetime(event.at))
        return page.heading("Told").json(event.params).text

    def action_server(self) -> None:
        """Ask for the server whose events are shown."""

        def chosen(server: str | None) -> None:
            self._server = server

        self._choose(
            "Events of which server?", "of all servers", sorted(self.boards.servers.rows), self._server, chosen
        )

    def action_kind(self) -> None:
        """Ask for the kind of events that is shown."""

        def chosen(kind: str | None) -> None:
            self._kind = kind

        self._choose("Which events?", "of all kinds", list(get_args(EventKind)), self._kind, chosen)

    def _choose(
        self, question: str, every: str, values: Sequence[str], now: str | None, choose: Callable[[str | None], None]
    ) -> None:
        def decided(at: int | None) -> None:
            if at is not None:
                choose(values[at - 1] if at else None)
                self.refresh_rows(at_once=True)

        shown = [every, *(text.line(each) for each in values)]
        self.hub_app.push_screen(Choose(question, shown, values.index(now) + 1 if now in values else 0), decided)

    def action_pause(self) -> None:
        """Pause the list, or go on."""
        self._paused = list(reversed(self.boards.events)) if self._paused is None else None
        self._paused_at = self.boards.events_seen
        self.refresh_rows(at_once=True)

    def action_clear(self) -> None:
        """Remove all events."""
        self.boards.events.clear()
        self._paused = [] if self._paused is not None else None
        self.refresh_rows(at_once=True)
