"""What the panes have in common: a table, the detail of the row under the cursor, a filter."""

import time
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import anyio
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.widget import Widget
from textual.widgets import DataTable, Input, Static

from hubbub_client.errors import HubbubError
from hubbub_frontend.text import line
from hubbub_tui.boards import Board, Boards, Row
from hubbub_tui.part import Part
from hubbub_tui.table import Column, RecordTable

TICK_S = 0.2
# A screen that changes all the time is busy at most one part in this many.
SHARE = 5
# Moving along a list loads no details.
SETTLE_S = 0.08


class Filter(Input):
    """Words that all must occur; not shown while nobody asks for them."""

    def __init__(self) -> None:
        super().__init__(
            placeholder="words that all must occur; enter to go to the list", classes="filter", compact=True
        )
        self.display = False

    @property
    def words(self) -> list[str]:
        """The words, in lower case."""
        return self.value.lower().split()

    def lets_through(self, text: str) -> bool:
        """Whether a text has all the words."""
        text = text.lower()
        return all(word in text for word in self.words)

    def ask(self) -> None:
        """Asks for the words."""
        self.display = True
        self.focus()

    def clear_words(self) -> None:
        """Asks for nothing any more."""
        self.value, self.display = "", False


class ListPane(Part, Vertical):
    """One kind of record. Subclasses say what its rows and their details are."""

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
        self._detailed: tuple[str, object] | None = None
        self.table = RecordTable(self.COLUMNS, follows=self.FOLLOWS)
        self._summary = Static(classes="summary", markup=False)
        self._filter = Filter()
        self._text = Static(markup=False)
        self._detail = VerticalScroll(self._text, classes="detail", can_focus=True)

    @property
    def boards(self) -> Boards:
        """What is known of the hub."""
        return self.hub_app.boards

    @property
    def current(self) -> Row[Any] | None:
        """The row under the cursor."""
        return self.table.current

    def rows(self) -> Sequence[Row[Any]]:
        """All rows, in their order."""
        raise NotImplementedError

    @property
    def board(self) -> Board[Any] | None:
        """Where the rows come from; None where they are no records."""
        raise NotImplementedError

    def version(self) -> object:
        """Changes when the rows do."""
        return self.board.version if self.board is not None else None

    def summary(self) -> str:
        """One line above the table."""
        raise NotImplementedError

    async def detail(self, row: Row[Any]) -> Text:
        """All there is to say about a row. Raises HubbubError."""
        raise NotImplementedError

    def aspect(self, row: Row[Any]) -> object:
        """Changes when the detail does."""
        return id(row)

    def words(self, row: Row[Any]) -> str:
        """What the filter looks at."""
        return f"{getattr(row.record, 'server', '')} {row.about} {row.key}"

    def compose(self) -> ComposeResult:
        """The parts."""
        yield self._summary
        yield self._filter
        with Container(classes="split"):
            yield self.table
            yield self._detail

    def on_mount(self) -> None:
        """Looks for changes from now on."""
        self.set_interval(TICK_S, self.refresh_rows)

    def refresh_rows(self, *, at_once: bool = False) -> None:
        """Shows what has changed, when it can be seen and it is time."""
        now = time.monotonic()
        shown = self.is_attached and self.parent is not None and cast("Widget", self.parent).display
        whole = self.board is None or self.board.synced
        # What is told once more, after a restart of the hub, is shown when all of it is there.
        if not shown or (now < self._next_at and not at_once) or (self._was_whole and not whole):
            return
        wanted = self._filter.words
        seen = (self.version(), wanted, int(now))
        if seen == self._seen and not at_once:
            return
        self._seen = seen
        rows = self.rows()
        if wanted:
            rows = [row for row in rows if self._filter.lets_through(self.words(row))]
        self.table.show(rows, at_top=not self._was_whole)
        self._was_whole |= whole
        filtered = f" · {len(rows)} with {line(' '.join(wanted))}" if wanted else ""
        if (said := self.summary() + filtered) != self._said:
            self._said = said
            self._summary.update(said, layout=False)
        self._show_detail()
        self._next_at = now + SHARE * (time.monotonic() - now)

    def focus_list(self) -> None:
        """Puts the keyboard on the table."""
        self.remove_class("-full")
        self.table.focus()

    def select(self, key: str) -> bool:
        """Puts the cursor on a row, whatever the filter; whether it is there."""
        self.clear_filter()
        self.refresh_rows(at_once=True)
        return self.table.go_to(key)

    def action_filter(self) -> None:
        """Asks for the words of the filter."""
        self._filter.ask()

    def open_row(self, row: Row[Any]) -> None:
        """What enter does: gives the detail all the room, here."""
        self.add_class("-full")
        self._detail.focus()

    def action_back(self) -> None:
        """Back to the table; from there, back to all rows."""
        if self.has_class("-full"):
            self.remove_class("-full")
            self.focus_list()
        else:
            self.clear_filter()

    def clear_filter(self) -> None:
        """Shows all rows again."""
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
        wanted = (row.key, self.aspect(row)) if row is not None else None
        if wanted == self._detailed:
            return
        fresh = wanted is None or self._detailed is None or wanted[0] != self._detailed[0]
        self._detailed = wanted
        self.run_worker(self._load(row, fresh), group="detail", exclusive=True)

    async def _load(self, row: Row[Any] | None, fresh: bool) -> None:
        await anyio.sleep(SETTLE_S)
        try:
            text = Text("") if row is None else await self.detail(row)
        except HubbubError as error:
            text = Text(line(error.message), style="red")
        self._show_text(text, fresh)

    def _show_text(self, text: Text, fresh: bool) -> None:
        self._text.update(text)
        if fresh:
            self._detail.scroll_home(animate=False)
