"""Values that nobody would send on purpose, each from a seed. Standard library only, as servers use it too."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

TEXTS = (
    "",
    " ",
    "x",
    "echo",
    "0",
    "null",
    "true",
    "-1",
    "NaN",
    "\x00",
    "\r\n",
    "a\nb\tc\x1b[31m\x07",
    "\u202egnp.exe\u2066",
    "\ufeffx",
    "é\u0301 ß 東京 🏳️‍🌈",
    "\U0010ffff",
    "../../etc/passwd",
    "/etc/passwd\x00.png",
    "..\\..\\x",
    "${HOME}",
    "${file:/etc/passwd}",
    "$(id)",
    "'; drop table calls; --",
    "%s%n{0}",
    "__proto__",
    "__class__",
    "<script>alert(1)</script>",
    "file:///",
    "file://",
    "http://[::1",
    "http://169.254.169.254/",
    "javascript:alert(1)",
    "https://user:password@example.com:99999/?q#f",
    "2025-11-25",
    "2026-07-28",
    "1e999",
    "*",
    "[!-]*",
    "elicitation/create",
    "hub-1",
)
NUMBERS: tuple[float, ...] = (
    0, 1, -1, 2, 7, 100, 1001, 2**31 - 1, 2**31, -(2**31), 2**53, 2**63, 2**64, -(2**63), 10**30,
    0.0, -0.0, 0.5, 1.5, -0.5, 1e-308, 1e308, -1e308, 5e-324,
)  # fmt: skip
NOT_JSON = (b"", b"{", b"]", b"nul", b"NaN", b"\xff\xfe", b'{"a":}', b'"\\x"', b'"\\ud800"', b"1e999", b"[1,]", b"\x00")
DEEP = (120, 190, 201, 250, 990, 1100)


class Chance:
    """One input's chance: the same seed makes the same choices on every machine."""

    def __init__(self, *seed: object) -> None:
        self._random = random.Random(":".join(map(str, seed)))

    def one_in(self, number: int) -> bool:
        return self._random.randrange(number) == 0

    def of(self, choices: Sequence[T]) -> T:
        return choices[self._random.randrange(len(choices))]

    def upto(self, most: int) -> int:
        return self._random.randint(0, most)

    def text(self) -> str:
        """Any text that UTF-8 can express."""
        if self.one_in(60):
            return self.of(("x", "é", "\x00", "🏳")) * self.of((65, 129, 5000, 100_000))
        if self.one_in(6):
            return "".join(chr(self._random.randrange(0xD800)) for _ in range(self.upto(12)))
        return self.of(TEXTS) + (self.of(TEXTS) if self.one_in(4) else "")

    def number(self) -> float:
        return self.of(NUMBERS) if self.one_in(2) else self._random.randint(-10, 10)

    def scalar(self) -> Any:
        return self.of((self.text, self.number, lambda: None, lambda: True, lambda: False, lambda: "\ud800"))()

    def value(self, depth: int = 3) -> Any:
        """Any JSON value, a lone surrogate here and there."""
        kind = self.upto(3) if depth else 0
        if kind == 1:
            return [self.value(depth - 1) for _ in range(self.upto(3))]
        if kind == 2:
            return {self.text(): self.value(depth - 1) for _ in range(self.upto(3))}
        return self.deep() if self.one_in(300) else self.scalar()

    def deep(self) -> Any:
        """A value of many levels, as deep as this one's own encoder goes."""
        found: Any = self.scalar()
        for _ in range(self.of(DEEP[:-2])):
            found = [found] if self.one_in(2) else {"a": found}
        return found

    def changed(self, value: Any) -> Any:
        """The value with something in it that is something else."""
        if isinstance(value, dict) and value and not self.one_in(6):
            return self._changed_object(value)
        if isinstance(value, list) and value and not self.one_in(6):
            at = self.upto(len(value) - 1)
            return [*value[:at], self.changed(value[at]), *value[at + self.upto(1) :]]
        return self.value()

    def _changed_object(self, value: dict[str, Any]) -> dict[str, Any]:
        key = self.of(sorted(value))
        rest = {name: inner for name, inner in value.items() if name != key}
        match self.upto(7):
            case 0:
                return rest
            case 1:
                return {**rest, self.text(): value[key]}
            case 2:
                return {**value, self.text(): self.value()}
            case _:
                return {**value, key: self.changed(value[key])}

    def maybe_changed(self, value: Any) -> Any:
        """The value, in one of two cases with up to three changes."""
        for _ in range(max(0, self.upto(5) - 2)):
            value = self.changed(value)
        return value

    def document(self, value: Any) -> bytes:
        """The value as JSON, sometimes one that is broken or nests without end."""
        if self.one_in(12):
            return self.of(NOT_JSON)
        if self.one_in(60):
            depth = self.of((*DEEP, 50_000))
            return b"[" * depth + b'"\\ud83d"' * self.upto(1) + b"]" * depth
        raw = json.dumps(value).encode()
        return self.broken(raw) if self.one_in(6) else raw

    def broken(self, raw: bytes) -> bytes:
        """The bytes with some that are wrong, missing or too many."""
        for _ in range(1 + self.upto(2)):
            at = self.upto(len(raw))
            steps: tuple[Callable[[], bytes], ...] = (
                lambda at=at, raw=raw: raw[:at],
                lambda at=at, raw=raw: raw[:at] + self.noise(4) + raw[at:],
                lambda at=at, raw=raw: raw[:at] + self.noise(2) + raw[at + 2 :],
                lambda at=at, raw=raw: raw[:at] + raw[at // 2 :],
            )
            raw = self.of(steps)()
        return raw

    def noise(self, most: int) -> bytes:
        return self._random.randbytes(self.upto(most))
