"""Notes for the operator what deviates from MCP in the results of a connection."""

from collections.abc import Callable
from typing import Any, Final

from hubbubd.upstream.deviations import Deviation, describe_deviation
from hubbubd.upstream.protocol.repair import ResultFindings

LISTS: Final = frozenset({"tools/list", "resources/list", "resources/templates/list", "prompts/list", "tasks/list"})
"""Methods whose pages are noted together. Callers may ask for others of such a name, as many as they like."""


class ResultNotes:
    """Notes about results. Those about a list are of all its pages, and go when the list is in order again."""

    def __init__(self, note: Callable[[str, str | None], None]) -> None:
        self._note = note
        self._lists: dict[str, ResultFindings] = {}

    def findings_for(self, method: str, params: dict[str, Any] | None) -> ResultFindings:
        """Return where to collect what deviates in a result of this request; the pages of a list share one."""
        if method not in LISTS:
            return ResultFindings()
        if not (params or {}).get("cursor"):
            self._lists[method] = ResultFindings()
        return self._lists.setdefault(method, ResultFindings())

    def note_introduction(self, found: ResultFindings) -> None:
        """Note what was found in the server's introduction."""
        self._note_empty_list(found)
        if found.repaired.count:
            self._note(Deviation.INTRODUCTION_MENDED, describe_deviation(Deviation.INTRODUCTION_MENDED))

    def note_result(self, method: str, result: dict[str, Any], found: ResultFindings) -> None:
        """Note what was found in a result."""
        self._note_empty_list(found)
        if method not in LISTS:
            if found.repaired.count:
                self._note(
                    Deviation.RESULT_MENDED, describe_deviation(Deviation.RESULT_MENDED, f"{method}: {found.repaired}")
                )
            if found.kept.count:
                self._note(
                    Deviation.CONTENT_UNKNOWN, describe_deviation(Deviation.CONTENT_UNKNOWN, f"{method}: {found.kept}")
                )
            return
        is_last_page = not result.get("nextCursor")
        for deviation, names in ((Deviation.ENTRY_MENDED, found.repaired), (Deviation.ENTRY_LEFT_OUT, found.left_out)):
            if names.count:
                self._note(f"{deviation}/{method}", describe_deviation(deviation, f"{method}: {names}"))
            elif is_last_page:
                self._note(f"{deviation}/{method}", None)

    def _note_empty_list(self, found: ResultFindings) -> None:
        if found.emptied:
            self._note(Deviation.EMPTY_LIST, describe_deviation(Deviation.EMPTY_LIST))
