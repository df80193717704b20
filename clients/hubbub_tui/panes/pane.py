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
# The pause after a refresh, in durations of that refresh: refreshing takes a sixth of the time at most.
PAUSE_PER_REFRESH = 5
# Details are loaded only when the cursor has rested for so long, seconds.
CURSOR_REST_S = 0.08


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

    def matches(self, text: str) -> bool:
        """Return whether a text has all the words."""
        lower_text = text.lower()
        return all(word in lower_text for word in self.words)

    def show_and_focus(self) -> None:
        """Show the field, for words to be typed."""
        self.display = True
        self.focus()

    def clear_and_hide(self) -> None:
        """Remove the words, and hide the field."""
        self.value, self.display = "", False


class FilteredPane(Part, Vertical):
    """A pane with a list or a tree, a summary and a filter above, and beside them the detail of the selected row."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "back", "Back", show=False),
    ]

    def __init__(self, listed: Widget) -> None:
        super().__init__()
        self._drawn_version: object = None  # the version of what is on the screen; None: draw again
        self._listed = listed
        self._summary = Static(classes="summary", markup=False)
        self._filter = PaneFilter()
        self._text = Static(markup=False)
        self._detail = Scroll(self._text, classes="detail")

    def compose(self) -> ComposeResult:
        yield self._summary
        yield self._filter
        with Container(classes="split"):
            yield self._listed
            yield self._detail

    def action_filter(self) -> None:
        """Show the field for the words that the filter looks for."""
        self._filter.show_and_focus()


class ListPane(FilteredPane, metaclass=AbstractWidget):
    """A pane for one kind of record. Subclasses define rows and details.

    With `FOLLOWS`, a cursor on the first row stays on the first row when rows are added above.
    """

    COLUMNS: ClassVar[tuple[Column, ...]] = ()
    FOLLOWS: ClassVar[bool] = False

    def __init__(self) -> None:
        self.table = RecordTable(self.COLUMNS, follows_newest=self.FOLLOWS)
        super().__init__(self.table)
        self._next_at = 0.0  # of `time.monotonic`, before which `refresh_rows` does nothing unless `at_once`
        # Whether the rows of a complete snapshot have been shown.
        self._has_shown_snapshot = False
        self._drawn_summary = ""
        # The key of the row whose detail is shown, and the version of that detail.
        self._detail_state: tuple[str, object] = ("", "")

    @property
    def boards(self) -> Boards:
        """Return the boards of the application."""
        return self.hub_app.boards

    @property
    def current(self) -> BoardRow[Any] | None:
        """Return the row under the cursor; None if there is no row."""
        return self.table.current

    @property
    def is_visible_pane(self) -> bool:
        """Return whether the pane is the visible one."""
        return self.is_attached and self.parent is not None and cast("Widget", self.parent).display

    def rows(self) -> Sequence[BoardRow[Any]]:
        """Return all rows, in order: here the newest first."""
        rows = self.board.rows.values() if self.board is not None else ()
        return sorted(rows, key=lambda row: row.record.created_at, reverse=True)

    @property
    @abstractmethod
    def board(self) -> Board[Any] | None:
        """Return the board of the rows; None if they are no records."""

    def version(self) -> object:
        """Return a value that changes with the rows."""
        return self.board.version if self.board is not None else None

    @abstractmethod
    def summary_line(self) -> str:
        """Return the line above the table."""

    @abstractmethod
    async def fetch_detail(self, row: BoardRow[Any]) -> Text:
        """Fetch and render a row in full. Raises HubbubError."""

    def empty_detail(self) -> Text:
        """Return what the detail says while there is no row."""
        return Text("")

    @property
    def loading_status(self) -> str:
        """Return in words why the rows are not known yet; empty if they are, so that no row means no record."""
        return self.boards.loading_status(self.board)

    def detail_version(self, row: BoardRow[Any]) -> object:
        """Return a value that changes with the detail."""
        return row

    def search_text(self, row: BoardRow[Any]) -> str:
        """Return the text that the filter searches."""
        return f"{getattr(row.record, 'server', '')} {row.about} {row.key}"

    def on_mount(self) -> None:
        """Look for changes of the rows, every TICK_S seconds."""
        self.set_interval(TICK_S, self.refresh_rows)

    def refresh_rows(self, *, at_once: bool = False) -> None:
        """Draw the rows of a visible pane again: if they have changed, and not too often, or else with `at_once`."""
        now = time.monotonic()
        is_complete = self.board is None or self.board.synced
        # A snapshot after a restart of the hub is shown when it is complete.
        if (
            not self.is_visible_pane
            or (now < self._next_at and not at_once)
            or (self._has_shown_snapshot and not is_complete)
        ):
            return
        words = self._filter.words
        version = (self.version(), words, int(now))  # ages of records change each second
        if version == self._drawn_version and not at_once:
            return
        self._drawn_version = version
        rows = self.rows()
        summary = self.summary_line() if rows or not self.loading_status else self.loading_status
        if words:
            rows = [row for row in rows if self._filter.matches(self.search_text(row))]
            summary += f" · {len(rows)} with {line(' '.join(words))}"
        self.table.show(rows, at_top=not self._has_shown_snapshot)
        self._has_shown_snapshot |= is_complete
        if summary != self._drawn_summary:
            self._drawn_summary = summary
            self._summary.update(summary, layout=False)
        self._show_detail()
        self._next_at = now + PAUSE_PER_REFRESH * (time.monotonic() - now)

    def focus_list(self) -> None:
        """Show the table beside the detail, and put the focus on it."""
        self.remove_class("-full")
        self.table.focus()

    def select(self, key: str) -> bool:
        """Move the cursor to a row, clearing the filter; return whether the row exists."""
        self.clear_filter()
        self.refresh_rows(at_once=True)
        return self.table.go_to(key)

    def show_related(self, pane: str, key: str | None, missing: str) -> None:
        """Go to the row with this key in another pane, or notify that the row is not kept there.

        Without a key, notify of `missing`.
        """
        if key:
            self.hub_app.show_row(pane, key)
        else:
            self.notify(missing)

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
        """Show all rows again, and put the focus on the table."""
        self._filter.clear_and_hide()
        self.focus_list()

    @on(Input.Submitted, ".filter")
    def _focus_list_after_filter(self) -> None:
        """Put the focus on the table when the words are complete."""
        self.focus_list()

    @on(Input.Changed, ".filter")
    def _apply_filter(self) -> None:
        """Show the rows that have the words typed so far."""
        self.refresh_rows(at_once=True)

    @on(DataTable.RowSelected)
    def _open_selected(self) -> None:
        """Open the row that is chosen with enter."""
        if (row := self.current) is not None:
            self.open_row(row)

    @on(DataTable.RowHighlighted)
    def _show_detail(self) -> None:
        """Show the detail of the row under the cursor, if the row is another one or its detail has changed."""
        row = self.current
        detail_state = (row.key, self.detail_version(row)) if row is not None else ("", self._empty_hint().plain)
        if detail_state == self._detail_state:
            return
        old_key, _ = self._detail_state
        new_key, _ = detail_state
        self._detail_state = detail_state
        self.run_worker(self._load_detail(row, scroll_home=new_key != old_key), group="detail", exclusive=True)

    async def _load_detail(self, row: BoardRow[Any] | None, *, scroll_home: bool) -> None:
        """Fetch and show the detail of a row; without a row, a hint. A newer call of `_show_detail` cancels this."""
        await anyio.sleep(CURSOR_REST_S)
        try:
            text = self._empty_hint() if row is None else await self.fetch_detail(row)
        except HubbubError as error:
            text = Text(line(error.message), style="red")
        self._text.update(text)
        if scroll_home:
            self._detail.scroll_home(animate=False)

    def _empty_hint(self) -> Text:
        """Return what the detail shows while there is no row."""
        if self._filter.words:
            return Text("No row has all these words; escape shows all rows.")
        return Text() if self.loading_status else self.empty_detail()
