"""The transcript of a session, in Markdown: what was asked for, said, done and decided. Its end is kept."""

from collections import deque
from typing import Final

from hubbub_acp.plain_text import count_bytes, strip_escapes

TRANSCRIPT_BYTES: Final = 512 * 1024
"""The most bytes of a transcript; the oldest entries go first."""

ENTRY_BYTES: Final = 64 * 1024
"""The most bytes of one entry; what an agent says beyond that is in the next one."""

MAX_ENTRIES: Final = 20_000

PROMPT, SPEECH, THOUGHT, EVENT = "prompt", "speech", "thought", "event"


class Transcript:
    """Entries in order; what an agent says in pieces is one entry."""

    def __init__(self) -> None:
        self._entries: deque[tuple[str, list[str], int]] = deque()
        self._bytes = 0
        self._is_pruned = False

    def add(self, kind: str, text: str) -> None:
        """Add a text. A piece of speech or of a thought goes into the last entry if that is of its kind, with room."""
        text = text if len(text) <= ENTRY_BYTES else f"{text[:ENTRY_BYTES]}…"
        size = count_bytes(text)
        if self._entries and kind in (SPEECH, THOUGHT):
            last_kind, parts, last_size = self._entries[-1]
            if last_kind == kind and last_size + size <= ENTRY_BYTES:
                parts.append(text)
                if len(parts) > 512:  # many short strings take far more memory than one long one
                    parts[:] = ["".join(parts)]
                self._entries[-1] = (kind, parts, last_size + size)
                self._count_and_prune(size)
                return
        self._entries.append((kind, [text], size))
        self._count_and_prune(size)

    def _count_and_prune(self, size: int) -> None:
        """Count added bytes, and remove the oldest entries beyond the limits."""
        self._bytes += size
        while self._bytes > TRANSCRIPT_BYTES or len(self._entries) > MAX_ENTRIES:
            self._bytes -= self._entries.popleft()[2]
            self._is_pruned = True

    def render(self, title: str) -> str:
        """Return the transcript as Markdown, below a title."""
        blocks = [f"# {title}"]
        if self._is_pruned:
            blocks.append("*What was before is no longer kept.*")
        for kind, parts, _ in self._entries:
            text = strip_escapes("".join(parts)).strip()
            if not text:
                continue
            if kind == PROMPT:
                blocks.append(f"## Prompt\n\n{text}")
            elif kind == THOUGHT:
                blocks.append("\n".join(f"> {line}" for line in text.splitlines()))
            else:
                blocks.append(text)
        return "\n\n".join(blocks) + "\n"
