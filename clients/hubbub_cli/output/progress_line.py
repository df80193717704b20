"""Progress: one moving line on a terminal, plain lines elsewhere."""

import sys
from typing import TYPE_CHECKING

from hubbub_cli.output.printer import console, note
from hubbub_shared.legible import clean

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

MAX_CHARS = 120


class ProgressLine:
    """Progress of one thing, on stderr. With `moving` false it prints lines on a terminal, too."""

    def __init__(self, *, moving: bool) -> None:
        self._moving = moving and sys.stderr.isatty()
        self._bar: Bar | None = None

    def print_step(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Show a step in the moving line, or print it as a line; `total` is None if it is not known."""
        if self._moving:
            self.show(text, done, total)
        else:
            note(text)

    def show(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Show progress in the moving line; where no line can move, print nothing. `total` is None if not known."""
        if not self._moving:
            return
        if self._bar is None:
            self._bar = _make_bar()
            self._bar.add_task("")
            self._bar.start()
        short = clean(" ".join(text.split()))[:MAX_CHARS]
        self._bar.update(self._bar.task_ids[0], completed=done or 0, total=total, description=short)

    def hide(self) -> None:
        """Remove the line from the terminal."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _make_bar() -> "Bar":
    """Return a bar of rich on stderr, which vanishes at its end; the text beside it is shown as it is."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), BarColumn(24), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    return Progress(*columns, console=console(stderr=True), transient=True)
