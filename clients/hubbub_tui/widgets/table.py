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
MIN_WIDE_WIDTH = 100
MIN_COLUMN_WIDTH = 12


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `cell` makes a row's text, one clean line. A column without a width takes the rest."""

    title: str
    cell: Callable[[BoardRow[Any]], Text | str]
    width: int | None = None
    wide: bool = False
    right: bool = False


class RecordTable(DataTable[Text]):
    """Rows of a board. With `follows_newest`, a cursor at the top stays at the top."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "Open"),
        *UP_DOWN,
    ]

    def __init__(self, columns: Sequence[Column], *, follows_newest: bool = False) -> None:
        super().__init__(cursor_type="row", zebra_stripes=False, cell_padding=1)
        self._all_columns = columns  # `_lay_out` chooses the visible ones
        self._follows_newest = follows_newest
        self._visible_columns: tuple[Column, ...] = ()
        self._widths: tuple[int, ...] = ()
        self._drawn_rows: list[BoardRow[Any]] = []
        self._cells: dict[str, tuple[Text, ...]] = {}  # the cells that are drawn, by the key of their row

    @property
    def current(self) -> BoardRow[Any] | None:
        """Return the row under the cursor; None if there is no row."""
        return self._drawn_rows[self.cursor_row] if 0 <= self.cursor_row < len(self._drawn_rows) else None

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Replace the columns, and draw all rows again."""
        self._all_columns = columns
        self._lay_out()

    def show(self, rows: Sequence[BoardRow[Any]], *, at_top: bool = False) -> None:
        """Replace the rows. The cursor stays on its row; it moves to the top with `at_top`, or if it follows the newest
        row and was there.
        """
        if not self._visible_columns:
            self._drawn_rows = [*rows]
            self._lay_out()
            return
        if [row.key for row in rows] == [row.key for row in self._drawn_rows] and self.row_count == len(rows):
            self._drawn_rows = [*rows]
            self._update_cells()
        else:
            self._rebuild(rows, at_top=at_top)

    def go_to(self, key: str) -> bool:
        """Move the cursor to a row; return whether the row exists."""
        for index, row in enumerate(self._drawn_rows):
            if row.key == key:
                self.move_cursor(row=index)
                return True
        return False

    def on_resize(self, _: events.Resize) -> None:
        """Choose the columns again: others may fit now."""
        self._lay_out()

    def _lay_out(self) -> None:
        """Choose the columns that fit, and their widths."""
        # Until the table has a size, that of the screen is used: the rows must be there when the next key is pressed.
        table_width = self.size.width or self.screen.size.width
        if not table_width:
            return
        self._visible_columns = tuple(
            column for column in self._all_columns if table_width >= MIN_WIDE_WIDTH or not column.wide
        )
        padding = 2 * self.cell_padding * len(self._visible_columns)
        fixed = sum(column.width or 0 for column in self._visible_columns)
        rest = max(table_width - fixed - padding - self.scrollbar_size_vertical, MIN_COLUMN_WIDTH)
        self._widths = tuple(column.width or rest for column in self._visible_columns)
        self._rebuild(self._drawn_rows, columns=True)

    def _rebuild(self, rows: Sequence[BoardRow[Any]], *, at_top: bool = False, columns: bool = False) -> None:
        """Draw all rows again; with `columns`, the columns, too."""
        old_row, old_index = self.current, self.cursor_row  # clearing moves the cursor to the top
        old_scroll = self.scroll_y
        self._drawn_rows = [*rows]
        self.clear(columns=columns)
        if columns:
            for number, (column, width) in enumerate(zip(self._visible_columns, self._widths, strict=True)):
                title = Text(column.title.rjust(width) if column.right else column.title)
                self.add_column(title, width=width, key=str(number))
        self._cells = {row.key: self._render_cells(row) for row in rows}
        for row in rows:
            self.add_row(*self._cells[row.key], key=row.key)
        if not rows:
            return
        index = min(old_index, len(rows) - 1)
        if old_row is not None:
            index = next((new_index for new_index, row in enumerate(rows) if row.key == old_row.key), index)
        if at_top or (self._follows_newest and old_index == 0):
            index = 0
        self.scroll_to(y=old_scroll + (index - old_index if old_scroll else 0), animate=False, immediate=True)
        self.move_cursor(row=index)

    def _update_cells(self) -> None:
        """Draw the cells that have changed."""
        for row in self._drawn_rows:
            cells, old_cells = self._render_cells(row), self._cells[row.key]
            for number, (cell, old_cell) in enumerate(zip(cells, old_cells, strict=True)):
                if cell != old_cell or cell.style != old_cell.style:
                    self.update_cell(row.key, str(number), cell)
            self._cells[row.key] = cells

    def _render_cells(self, row: BoardRow[Any]) -> tuple[Text, ...]:
        """Return the cells of a row, one for each column that is shown."""
        return tuple(_single_line(column.cell(row), right=column.right) for column in self._visible_columns)


def _single_line(cell: Text | str, *, right: bool) -> Text:
    """Return a cell as one line that ends in an ellipsis where it does not fit."""
    text = Text(line(cell)) if isinstance(cell, str) else cell
    text.no_wrap, text.overflow = True, "ellipsis"
    text.justify = "right" if right else None
    return text
