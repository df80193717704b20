"""Secrets that the hub knows, taken out of all it says: errors, faults, logs, spans, what servers write to stderr."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

SHORTEST: Final = 8
"""Shorter values are left alone: they would be found in every other word."""

PIECES: Final = 256
"""Of one value, as many words are looked for by themselves. A pattern of very many would take the hub's time."""

LONG: Final = 4096
"""Longer values are looked for one by one: a pattern takes long to make of them."""

MARK: Final = "[redacted]"


class Redaction:
    """Known secrets, each by the owner it belongs to."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[str]] = {}
        self._long: list[str] = []
        self._pattern: re.Pattern[str] | None = None

    def learn(self, owner: str, values: Iterable[str], *, whole: bool = False) -> None:
        """These, and no others any more, are the owner's secrets; each word of them too, unless they are `whole`.

        What a stranger chose is taken whole: else it would say which words the hub cannot write any more.
        """
        found = frozenset(
            part
            for value in values
            for part in (value, *(() if whole else value.split(maxsplit=PIECES)[:PIECES]))
            if len(part) >= SHORTEST
        )
        if found == self._known.get(owner, frozenset()):
            return
        self._known[owner] = found
        if not found:
            del self._known[owner]
        # The longest first, so that no piece of one is left beside a shorter one.
        known = sorted({secret for secrets in self._known.values() for secret in secrets}, key=len, reverse=True)
        self._long = [secret for secret in known if len(secret) > LONG]
        short = known[len(self._long) :]
        self._pattern = re.compile("|".join(map(re.escape, short))) if short else None

    def text(self, text: str) -> str:
        """The text without known secrets."""
        for secret in self._long:
            text = text.replace(secret, MARK)
        return self._pattern.sub(MARK, text) if self._pattern is not None else text

    def finds(self, texts: Iterable[str]) -> bool:
        """Whether there may be a secret in the texts: one look at all is less work than taking it out of each."""
        if not self._known:
            return False
        together = "\n".join(texts)
        return self.text(together) != together

    def value(self, value: Any, *, within: bool = False) -> Any:
        """The same for all texts within mappings and sequences.

        The names of a mapping's fields are the hub's own words and stay as they are. What lies `within` a field may
        come from anybody: there, names are texts too.
        """
        if not self._known:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.text(value.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        if isinstance(value, Mapping):
            entries = cast("Mapping[Any, Any]", value)
            return {
                self.value(key) if within else key: self.value(entry, within=True) for key, entry in entries.items()
            }
        if isinstance(value, Sequence):
            return [self.value(item, within=within) for item in cast("Sequence[Any]", value)]
        return value


REDACTION: Final = Redaction()
"""The one of this process: what it logs has one way out as well."""
