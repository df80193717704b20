"""A table of changing rows: unchanged rows are not drawn again, and the cursor stays on its row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from hubbub_frontend.display.text import line
from hubbub_tui.boards import BoardRow
from hubbub_tui.widgets.part import UP_DOWN

# From this width on there is room for columns that are `wide`.
WIDE = 100
LEAST_WIDTH = 12


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `cell` makes a row's text, one clean line. A column without a width takes the rest."""

    title: str
    cell: Callable[[BoardRow[Any]], Text | str]
    width: int | None = None
    wide: bool = False
    right: bool = False


class RecordTable(DataTable[Text]):
    """Rows of a board. With `follows`, a cursor at the top stays at the top."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "Open"),
        *UP_DOWN,
    ]

    def __init__(self, columns: Sequence[Column], *, follows: bool = False) -> None:
        super().__init__(cursor_type="row", zebra_stripes=False, cell_padding=1)
        self._all_columns = columns
        self._follows = follows
        self._now_columns: tuple[Column, ...] = ()
        self._widths: tuple[int, ...] = ()
        self._rows_shown: list[BoardRow[Any]] = []
        self._cells: dict[str, tuple[Text, ...]] = {}

    @property
    def current(self) -> BoardRow[Any] | None:
        """Return the row under the cursor."""
        return self._rows_shown[self.cursor_row] if 0 <= self.cursor_row < len(self._rows_shown) else None

    def use(self, columns: Sequence[Column]) -> None:
        """Show other columns."""
        self._all_columns = columns
        self._lay_out()

    def show(self, rows: Sequence[BoardRow[Any]], *, at_top: bool = False) -> None:
        """Replace the rows; the cursor stays on its row, or moves to the top."""
        if not self._now_columns:
            self._rows_shown = [*rows]
            self._lay_out()
            return
        if [row.key for row in rows] == [row.key for row in self._rows_shown] and self.row_count == len(rows):
            self._rows_shown = [*rows]
            self._update()
        else:
            self._rebuild(rows, at_top=at_top)

    def go_to(self, key: str) -> bool:
        """Move the cursor to a row; return whether the row exists."""
        for index, row in enumerate(self._rows_shown):
            if row.key == key:
                self.move_cursor(row=index)
                return True
        return False

    def on_resize(self, _: events.Resize) -> None:
        """Fit the columns to the width."""
        self._lay_out()

    def _lay_out(self) -> None:
        # Until it has a size of its own, the screen's will do: the rows must be there for the next key.
        room = self.size.width or self.screen.size.width
        if not room:
            return
        self._now_columns = tuple(each for each in self._all_columns if room >= WIDE or not each.wide)
        padding = 2 * self.cell_padding * len(self._now_columns)
        fixed = sum(each.width or 0 for each in self._now_columns)
        rest = max(room - fixed - padding - self.scrollbar_size_vertical, LEAST_WIDTH)
        self._widths = tuple(each.width or rest for each in self._now_columns)
        self._rebuild(self._rows_shown, columns=True)

    def _rebuild(self, rows: Sequence[BoardRow[Any]], *, at_top: bool = False, columns: bool = False) -> None:
        before, index = self.current, self.cursor_row  # clearing moves the cursor to the top
        scroll = self.scroll_y
        self._rows_shown = [*rows]
        self.clear(columns=columns)
        if columns:
            for number, (each, width) in enumerate(zip(self._now_columns, self._widths, strict=True)):
                title = Text(each.title.rjust(width) if each.right else each.title)
                self.add_column(title, width=width, key=str(number))
        self._cells = {row.key: self._made(row) for row in rows}
        for row in rows:
            self.add_row(*self._cells[row.key], key=row.key)
        if not rows:
            return
        kept = next((at for at, row in enumerate(rows) if before is not None and row.key == before.key), None)
        at_top |= self._follows and index == 0
        target = 0 if at_top else min(index, len(rows) - 1) if kept is None else kept
        self.scroll_to(y=scroll + (target - index if scroll else 0), animate=False, immediate=True)
        self.move_cursor(row=target)

    def _update(self) -> None:
        for row in self._rows_shown:
            now, before = self._made(row), self._cells[row.key]
            for number, (new, old) in enumerate(zip(now, before, strict=True)):
                if new != old or new.style != old.style:
                    self.update_cell(row.key, str(number), new)
            self._cells[row.key] = now

    def _made(self, row: BoardRow[Any]) -> tuple[Text, ...]:
        return tuple(_one_line(each.cell(row), right=each.right) for each in self._now_columns)


def _one_line(cell: Text | str, *, right: bool) -> Text:
    text = Text(line(cell)) if isinstance(cell, str) else cell
    text.no_wrap, text.overflow = True, "ellipsis"
    text.justify = "right" if right else None
    return text
