"""Redaction: known secrets are removed from all output: errors, faults, logs, spans, servers' stderr."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

MIN_CHARS: Final = 8
"""Shorter secrets are not redacted: they would match in ordinary words."""

MAX_WORDS: Final = 256
"""How many words of one value are redacted by themselves, as the pattern must stay small."""

LONG: Final = 4096
"""Longer values are replaced one by one instead of being part of the pattern, which is slow to compile."""

MARK: Final = "[redacted]"


class Redaction:
    """The known secrets by owner, and the pattern that finds them."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[str]] = {}
        self._long: list[str] = []
        self._pattern: re.Pattern[str] | None = None

    def set_secrets(self, owner: str, values: Iterable[str], *, whole: bool = False) -> None:
        """Set the secrets of an owner, in place of earlier ones. Each word of a value is one, too, unless `whole`.

        Values that an unauthenticated caller chose must be `whole`: else that caller could have common words redacted.
        """
        secrets: set[str] = set()
        for value in values:
            secrets.add(value)
            if not whole:
                secrets.update(value.split(maxsplit=MAX_WORDS)[:MAX_WORDS])
        long_enough = frozenset(secret for secret in secrets if len(secret) >= MIN_CHARS)
        if long_enough == self._known.get(owner, frozenset()):
            return
        self._known[owner] = long_enough
        if not long_enough:
            del self._known[owner]
        # Longest first, so that a shorter secret within a longer one does not leave its rest.
        known = sorted(frozenset[str]().union(*self._known.values()), key=len, reverse=True)
        self._long = [secret for secret in known if len(secret) > LONG]
        short = known[len(self._long) :]
        self._pattern = re.compile("|".join(map(re.escape, short))) if short else None

    def redact_text(self, text: str) -> str:
        """Return the text with known secrets replaced."""
        for secret in self._long:
            text = text.replace(secret, MARK)
        return self._pattern.sub(MARK, text) if self._pattern is not None else text

    def may_contain_secret(self, texts: Iterable[str]) -> bool:
        """Return whether the texts may contain a secret. One search over all of them together is cheap."""
        if not self._known:
            return False
        together = "\n".join(texts)
        return self.redact_text(together) != together

    def redact_value(self, value: Any, *, redact_keys: bool = False) -> Any:
        """Return the value with all texts within mappings and sequences redacted.

        Keys of the outermost mapping are the hub's own words and stay. With `redact_keys` they are redacted, too:
        within a field anything may come from anybody.
        """
        if not self._known:
            return value
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, bytes):
            return self.redact_text(value.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        if isinstance(value, Mapping):
            entries = cast("Mapping[Any, Any]", value)
            shown: dict[Any, Any] = {}
            for key, entry in entries.items():
                name = self.redact_value(key) if redact_keys else key
                while name in shown:  # no member hides another one
                    name = f"{name} ({len(shown) + 1})"
                shown[name] = self.redact_value(entry, redact_keys=True)
            return shown
        if isinstance(value, Sequence):
            return [self.redact_value(item, redact_keys=redact_keys) for item in cast("Sequence[Any]", value)]
        return value


REDACTION: Final = Redaction()
"""The process-wide instance, as all output of the process passes through it."""
