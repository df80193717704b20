"""The last filter of a line on its way to the terminal."""

from rich.cells import set_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from hubbub_shared.legible import clean, is_clean


class CleanOutput(LineFilter):
    """Keeps text of any widget from steering the terminal: colours and movements are Textual's own.

    Text of others is cleaned earlier, so that its width is known. This catches the rest: pasted text, and what widgets
    of Textual bring along.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the same segments, each cleaned and as wide as before."""
        return [each if each.control or is_clean(each.text) else _clean_segment(each) for each in segments]


def _clean_segment(segment: Segment) -> Segment:
    """Return a segment without characters that steer a terminal, as wide as before."""
    return Segment(set_cell_size(clean(segment.text), segment.cell_length), segment.style)
