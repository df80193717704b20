"""Lines on stderr, which the hub shows as the log of this server."""

import os
from contextlib import suppress
from typing import Final

from hubbub_acp.plain_text import shorten

LINE_CHARACTERS: Final = 4000
STDERR: Final = 2


def log(text: str) -> None:
    """Write a line to stderr, of at most LINE_CHARACTERS; it is lost if stderr cannot be written."""
    with suppress(OSError):
        os.write(STDERR, f"{shorten(text, LINE_CHARACTERS)}\n".encode(errors="replace"))
