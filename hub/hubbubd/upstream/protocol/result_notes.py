"""Notes what was odd in the results of a connection."""

from collections.abc import Callable
from typing import Any, Final

from hubbubd.upstream.deviations import Deviation, words
from hubbubd.upstream.protocol.repair import ResultFindings

LISTS: Final = frozenset({"tools/list", "resources/list", "resources/templates/list", "prompts/list", "tasks/list"})
"""Methods whose pages are noted together. Callers may ask for others of such a name, as many as they like."""


class ResultNotes:
    """Notes about results. Those about a list are of all its pages, and go when the list is in order again."""

    def __init__(self, note: Callable[[str, str | None], None]) -> None:
        self._note = note
        self._lists: dict[str, ResultFindings] = {}

    def begin(self, method: str, params: dict[str, Any] | None) -> ResultFindings:
        """Return what to put into what is odd in a result of this request."""
        if method not in LISTS:
            return ResultFindings()
        if not (params or {}).get("cursor"):
            self._lists[method] = ResultFindings()
        return self._lists.setdefault(method, ResultFindings())

    def introduced(self, found: ResultFindings) -> None:
        """Note what was found in the server's introduction."""
        self._emptied(found)
        if found.mended.count:
            self._note(Deviation.INTRODUCTION_MENDED, words(Deviation.INTRODUCTION_MENDED))

    def end(self, method: str, result: dict[str, Any], found: ResultFindings) -> None:
        """Note what was found in a result."""
        self._emptied(found)
        if method not in LISTS:
            for deviation, names in ((Deviation.RESULT_MENDED, found.mended), (Deviation.CONTENT_UNKNOWN, found.kept)):
                if names.count:
                    self._note(deviation, words(deviation, f"{method}: {names}"))
            return
        whole = not result.get("nextCursor")
        for deviation, names in ((Deviation.ENTRY_MENDED, found.mended), (Deviation.ENTRY_LEFT_OUT, found.left_out)):
            if names.count:
                self._note(f"{deviation}/{method}", words(deviation, f"{method}: {names}"))
            elif whole:
                self._note(f"{deviation}/{method}", None)

    def _emptied(self, found: ResultFindings) -> None:
        if found.emptied:
            self._note(Deviation.EMPTY_LIST, words(Deviation.EMPTY_LIST))
