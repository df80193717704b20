"""The one way to a terminal for what rich lays out."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from hubbub_client.legible import clean, is_clean


class Screen(Console):
    """A console on which no text steers the terminal: colours and movements are rich's own.

    What goes into a table is made clean before, too, so that rich knows how wide it is.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich does, each piece of text clean, and in letters that the stream can write."""
        encoding = self.encoding
        every = encoding.startswith("utf")
        for segment in super().render(renderable, options):
            if segment.control or (every and is_clean(segment.text)):
                yield segment
            else:
                text = clean(segment.text)
                yield Segment(text if every else text.encode(encoding, "replace").decode(encoding), segment.style)
