"""The pane of events and logs: what servers report, as it happens."""

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
from hubbub_tui.screens.dialogs import ChoicePrompt
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
        # The events as they were at a pause, newest first (None: no pause), and how many had come until then.
        self._paused: list[BoardRow[ServerEvent]] | None = None
        self._paused_at = 0
        # Of which server and of which kind events are shown; None: of all.
        self._server: str | None = None
        self._kind: str | None = None

    @property
    def board(self) -> None:
        """Return None: events are no records, and the hub keeps none."""
        return None

    def version(self) -> object:
        """Return a value that changes with the events and with which of them are shown."""
        return self._paused is not None, self.boards.events_seen, len(self.boards.events), self._server, self._kind

    def rows(self) -> Sequence[BoardRow[ServerEvent]]:
        """Return the events of the chosen server and kind, newest first; while paused, those from before the pause."""
        rows = self._paused if self._paused is not None else list(reversed(self.boards.events))
        return [
            row for row in rows if self._server in (None, row.record.server) and self._kind in (None, row.record.kind)
        ]

    def summary_line(self) -> str:
        """Return how many events there were, which are shown, and how many were lost or came during a pause."""
        boards = self.boards
        parts = [f"the last {len(boards.events)} of {boards.events_seen} events" if boards.events else "No events yet"]
        chosen = [text.line(choice) for choice in (self._server, self._kind) if choice]
        if boards.events and not chosen:
            parts.append("s, e and / choose which")
        if self._paused is not None:
            parts.append(f"PAUSED, {boards.events_seen - self._paused_at} more since")
        if boards.events_dropped:
            parts.append(f"{boards.events_dropped} lost on the way")
        if chosen:
            parts.append(f"only {' '.join(chosen)}")
        return " · ".join(parts)

    def empty_detail(self) -> Text:
        """Return why there are no events to show."""
        if self.boards.events:
            return DetailText().paragraph("Nothing fits. s and e choose server and kind; escape clears the words.").text
        page = DetailText().paragraph(
            "What servers report, such as progress and log lines, appears here as it happens."
        )
        return page.paragraph("Events are not stored: those from before this screen was opened are gone.", "dim").text

    def search_text(self, row: BoardRow[Any]) -> str:
        """Return what the filter searches: the server, the kind and the line of the event."""
        return f"{row.record.server or HUB} {row.record.kind} {row.about}"

    async def fetch_detail(self, row: BoardRow[Any]) -> Text:
        """Render the event in full, with its params as JSON; nothing is fetched."""
        event: ServerEvent = row.record
        page = DetailText().fact("kind", event.kind).fact("server", event.server or HUB).fact("method", event.method)
        page.fact("call", event.call_id).fact("at", local_datetime(event.at))
        return page.heading("Told").json(event.params).text

    def action_server(self) -> None:
        """Ask for the server whose events are shown."""

        def set_server(server: str | None) -> None:
            """Show only the events of this server; None shows those of all servers."""
            self._server = server

        self._ask_choice(
            "Events of which server?", "of all servers", sorted(self.boards.servers.rows), self._server, set_server
        )

    def action_kind(self) -> None:
        """Ask for the kind of events that is shown."""

        def set_kind(kind: str | None) -> None:
            """Show only the events of this kind; None shows those of all kinds."""
            self._kind = kind

        self._ask_choice("Which events?", "of all kinds", list(get_args(EventKind)), self._kind, set_kind)

    def _ask_choice(
        self,
        question: str,
        any_label: str,
        values: Sequence[str],
        current: str | None,
        choose: Callable[[str | None], None],
    ) -> None:
        """Ask for one of the values, or for all by `any_label`. `choose` gets the value, or None for all; it is not
        called if the person leaves.
        """

        def choose_by_index(index: int | None) -> None:
            """Call `choose` with the value at an index of the labels, and show its events."""
            if index is not None:
                choose(values[index - 1] if index else None)
                self.refresh_rows(at_once=True)

        labels = [any_label, *(text.line(value) for value in values)]
        current_index = values.index(current) + 1 if current in values else 0
        self.hub_app.push_screen(ChoicePrompt(question, labels, current_index), choose_by_index)

    def action_pause(self) -> None:
        """Pause the list, or go on."""
        self._paused = list(reversed(self.boards.events)) if self._paused is None else None
        self._paused_at = self.boards.events_seen
        self.refresh_rows(at_once=True)

    def action_clear(self) -> None:
        """Remove all events, also those of a pause."""
        self.boards.events.clear()
        self._paused = [] if self._paused is not None else None
        self.refresh_rows(at_once=True)
