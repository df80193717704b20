"""The last step of a line on its way to the terminal."""

from rich.cells import set_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from hubbub_client.legible import clean, is_clean


class Legible(LineFilter):
    """No text of any widget steers the terminal: colours and movements are Textual's own.

    What others wrote is made clean before, so that it is known how wide it is. What is left are the texts that nobody
    made: those that somebody pastes into a field, and whatever a widget of Textual's own brings along.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments, each clean and as wide as it was."""
        return [each if each.control or is_clean(each.text) else _cleaned(each) for each in segments]


def _cleaned(segment: Segment) -> Segment:
    return Segment(set_cell_size(clean(segment.text), segment.cell_length), segment.style)
