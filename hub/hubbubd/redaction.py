"""Redaction: known secrets are removed from all output: errors, faults, logs, spans, servers' stderr."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

MIN_CHARS: Final = 8
"""Shorter secrets are not redacted: they would match in ordinary words."""

MAX_WORDS: Final = 256
"""How many words of one value are redacted by themselves, as the pattern must stay small."""

MAX_PATTERN_CHARS: Final = 4096
"""Characters. Longer secrets are replaced one by one: in the pattern they would be slow to compile."""

MARK: Final = "[redacted]"


class Redaction:
    """The known secrets by owner, and the pattern that finds them."""

    def __init__(self) -> None:
        self._secrets_by_owner: dict[str, frozenset[str]] = {}
        self._long_secrets: list[str] = []
        self._pattern: re.Pattern[str] | None = None  # matches all other secrets; None if there are none

    def set_secrets(self, owner: str, values: Iterable[str], *, whole_only: bool = False) -> None:
        """Set the secrets of an owner, in place of earlier ones. Unless `whole_only`, each word of a value is one, too.

        Values that an unauthenticated caller chose must be `whole_only`: else that caller could have common words
        redacted.
        """
        secrets: set[str] = set()
        for value in values:
            secrets.add(value)
            if not whole_only:
                secrets.update(value.split(maxsplit=MAX_WORDS)[:MAX_WORDS])
        long_enough = frozenset(secret for secret in secrets if len(secret) >= MIN_CHARS)
        if long_enough == self._secrets_by_owner.get(owner, frozenset()):
            return
        self._secrets_by_owner[owner] = long_enough
        if not long_enough:
            del self._secrets_by_owner[owner]
        # Longest first, so that a shorter secret within a longer one does not leave its rest.
        all_secrets = sorted(frozenset[str]().union(*self._secrets_by_owner.values()), key=len, reverse=True)
        self._long_secrets = [secret for secret in all_secrets if len(secret) > MAX_PATTERN_CHARS]
        short_secrets = all_secrets[len(self._long_secrets) :]
        self._pattern = re.compile("|".join(map(re.escape, short_secrets))) if short_secrets else None

    def redact_text(self, text: str) -> str:
        """Return the text with known secrets replaced."""
        for secret in self._long_secrets:
            text = text.replace(secret, MARK)
        return self._pattern.sub(MARK, text) if self._pattern is not None else text

    def may_contain_secret(self, texts: Iterable[str]) -> bool:
        """Return whether the texts may contain a secret. One search over all of them together is cheap."""
        if not self._secrets_by_owner:
            return False
        together = "\n".join(texts)
        return self.redact_text(together) != together

    def redact_value(self, value: Any, *, redact_keys: bool = False) -> Any:
        """Return the value with all texts within mappings and sequences redacted.

        Keys of the outermost mapping are the hub's own and stay, unless `redact_keys`. Keys of inner mappings are
        redacted, as they may come from anybody.
        """
        if not self._secrets_by_owner:
            return value
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, bytes):
            return self.redact_text(value.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        if isinstance(value, Mapping):
            entries = cast("Mapping[Any, Any]", value)
            redacted: dict[Any, Any] = {}
            for key, entry in entries.items():
                redacted_key = self.redact_value(key) if redact_keys else key
                while redacted_key in redacted:  # two keys may be equal once redacted; both members stay
                    redacted_key = f"{redacted_key} ({len(redacted) + 1})"
                redacted[redacted_key] = self.redact_value(entry, redact_keys=True)
            return redacted
        if isinstance(value, Sequence):
            return [self.redact_value(item, redact_keys=redact_keys) for item in cast("Sequence[Any]", value)]
        return value


REDACTION: Final = Redaction()
"""The process-wide instance, as all output of the process passes through it."""
