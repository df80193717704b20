"""What all panes share: a table, the detail of the row under the cursor, a filter."""

import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import anyio
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.widget import Widget
from textual.widgets import DataTable, Input, Static

from hubbub_client.errors import HubbubError
from hubbub_frontend.display.text import line
from hubbub_tui.boards import Board, BoardRow, Boards
from hubbub_tui.widgets.part import AbstractWidget, Part, Scroll
from hubbub_tui.widgets.table import Column, RecordTable

TICK_S = 0.2
# Refreshing takes at most one part in so many of the time.
SHARE = 5
# Details are loaded only when the cursor has rested for so long, seconds.
SETTLE_S = 0.08


class PaneFilter(Input):
    """Words that must all occur; hidden while there are none."""

    def __init__(self) -> None:
        super().__init__(
            placeholder="words that all must occur; enter to go to the list", classes="filter", compact=True
        )
        self.display = False

    @property
    def words(self) -> list[str]:
        """Return the words, in lower case."""
        return self.value.lower().split()

    def lets_through(self, text: str) -> bool:
        """Return whether a text has all the words."""
        text = text.lower()
        return all(word in text for word in self.words)

    def ask(self) -> None:
        """Show and focus the filter."""
        self.display = True
        self.focus()

    def clear_words(self) -> None:
        """Clear and hide the filter."""
        self.value, self.display = "", False


class ListPane(Part, Vertical, metaclass=AbstractWidget):
    """A pane for one kind of record. Subclasses define rows and details."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "back", "Back", show=False),
    ]
    COLUMNS: ClassVar[tuple[Column, ...]] = ()
    FOLLOWS: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._seen: object = None
        self._next_at = 0.0
        self._was_whole = False
        self._said = ""
        self._detailed: tuple[str, object] = ("", "")
        self.table = RecordTable(self.COLUMNS, follows=self.FOLLOWS)
        self._summary = Static(classes="summary", markup=False)
        self._filter = PaneFilter()
        self._text = Static(markup=False)
        self._detail = Scroll(self._text, classes="detail")

    @property
    def boards(self) -> Boards:
        """Return the boards of the application."""
        return self.hub_app.boards

    @property
    def current(self) -> BoardRow[Any] | None:
        """Return the row under the cursor."""
        return self.table.current

    @property
    def shown(self) -> bool:
        """Return whether the pane is the visible one."""
        return self.is_attached and self.parent is not None and cast("Widget", self.parent).display

    @abstractmethod
    def rows(self) -> Sequence[BoardRow[Any]]:
        """Return all rows, in order."""

    @property
    @abstractmethod
    def board(self) -> Board[Any] | None:
        """Return the board of the rows; None if they are no records."""

    def version(self) -> object:
        """Return a value that changes with the rows."""
        return self.board.version if self.board is not None else None

    @abstractmethod
    def summary(self) -> str:
        """Return the line above the table."""

    @abstractmethod
    async def detail(self, row: BoardRow[Any]) -> Text:
        """Fetch and render a row in full. Raises HubbubError."""

    def nothing(self) -> Text:
        """Return what the detail says while there is no row."""
        return Text("")

    @property
    def unknown(self) -> str:
        """Return why it is not known what the hub has; empty while it is known, and none then means none."""
        return self.boards.unknown(self.board)

    def aspect(self, row: BoardRow[Any]) -> object:
        """Return a value that changes with the detail."""
        return row

    def words(self, row: BoardRow[Any]) -> str:
        """Return the text that the filter searches."""
        return f"{getattr(row.record, 'server', '')} {row.about} {row.key}"

    def compose(self) -> ComposeResult:
        yield self._summary
        yield self._filter
        with Container(classes="split"):
            yield self.table
            yield self._detail

    def on_mount(self) -> None:
        """Start following changes."""
        self.set_interval(TICK_S, self.refresh_rows)

    def refresh_rows(self, *, at_once: bool = False) -> None:
        """Show changes, while the pane is visible and not too often."""
        now = time.monotonic()
        whole = self.board is None or self.board.synced
        # A snapshot after a restart of the hub is shown when it is complete.
        if not self.shown or (now < self._next_at and not at_once) or (self._was_whole and not whole):
            return
        wanted = self._filter.words
        seen = (self.version(), wanted, int(now))
        if seen == self._seen and not at_once:
            return
        self._seen = seen
        rows = self.rows()
        summary = self.summary() if rows or not self.unknown else self.unknown
        if wanted:
            rows = [row for row in rows if self._filter.lets_through(self.words(row))]
        self.table.show(rows, at_top=not self._was_whole)
        self._was_whole |= whole
        filtered = f" · {len(rows)} with {line(' '.join(wanted))}" if wanted else ""
        if (said := summary + filtered) != self._said:
            self._said = said
            self._summary.update(said, layout=False)
        self._show_detail()
        self._next_at = now + SHARE * (time.monotonic() - now)

    def focus_list(self) -> None:
        """Focus the table."""
        self.remove_class("-full")
        self.table.focus()

    def select(self, key: str) -> bool:
        """Move the cursor to a row, clearing the filter; return whether the row exists."""
        self.clear_filter()
        self.refresh_rows(at_once=True)
        return self.table.go_to(key)

    def action_filter(self) -> None:
        """Focus the filter."""
        self._filter.ask()

    def open_row(self, row: BoardRow[Any]) -> None:
        """Handle enter: give the whole pane to the detail."""
        self.add_class("-full")
        self._detail.focus()

    def action_back(self) -> None:
        """Go back to the table; from there, to all rows."""
        if self.has_class("-full"):
            self.remove_class("-full")
            self.focus_list()
        else:
            self.clear_filter()

    def clear_filter(self) -> None:
        """Show all rows again."""
        self._filter.clear_words()
        self.focus_list()

    @on(Input.Submitted, ".filter")
    def _filtered(self) -> None:
        self.focus_list()

    @on(Input.Changed, ".filter")
    def _filtering(self) -> None:
        self.refresh_rows(at_once=True)

    @on(DataTable.RowHighlighted)
    def _moved(self) -> None:
        self._show_detail()

    @on(DataTable.RowSelected)
    def _chosen(self) -> None:
        if (row := self.current) is not None:
            self.open_row(row)

    def _show_detail(self) -> None:
        row = self.current
        wanted = (row.key, self.aspect(row)) if row is not None else ("", self._empty().plain)
        if wanted == self._detailed:
            return
        fresh = wanted[0] != self._detailed[0]
        self._detailed = wanted
        self.run_worker(self._load(row, fresh), group="detail", exclusive=True)

    async def _load(self, row: BoardRow[Any] | None, fresh: bool) -> None:
        await anyio.sleep(SETTLE_S)
        try:
            text = self._empty() if row is None else await self.detail(row)
        except HubbubError as error:
            text = Text(line(error.message), style="red")
        self._show_text(text, fresh)

    def _empty(self) -> Text:
        if self._filter.words:
            return Text("No row has all these words; escape shows all rows.")
        return Text() if self.unknown else self.nothing()

    def _show_text(self, text: Text, fresh: bool) -> None:
        self._text.update(text)
        if fresh:
            self._detail.scroll_home(animate=False)
