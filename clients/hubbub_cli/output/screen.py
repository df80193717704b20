"""The console of rich: the only way of laid-out text to the terminal."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from hubbub_shared.legible import clean, is_clean


class Screen(Console):
    """A console on which no text can steer the terminal: colours and movements are rich's own.

    Text in tables is cleaned before, so that rich knows its width.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the pieces that rich renders, each text cleaned of control characters.

        Letters that the stream cannot write become `?`.
        """
        encoding = self.encoding
        takes_all = encoding.startswith("utf")
        for segment in super().render(renderable, options):
            if segment.control or (takes_all and is_clean(segment.text)):
                yield segment
            else:
                text = clean(segment.text)
                yield Segment(text if takes_all else text.encode(encoding, "replace").decode(encoding), segment.style)
