"""A hub whose every answer is made by chance: right in its form, odd in all that it says."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tests.clients.conftest import SERVICES, Refusal, ScriptedHub

from .chance import Chance
from .messages import Maker, Memory

CODES = (
    "NOT_FOUND",
    "PERMISSION_DENIED",
    "FAILED_PRECONDITION",
    "INVALID_ARGUMENT",
    "UNAVAILABLE",
    "ABORTED",
    "UNKNOWN",
)
# With these a watch ends: no client asks again.
FINAL = ("NOT_FOUND", "PERMISSION_DENIED", "OUT_OF_RANGE")
METHODS = {
    method.name: method.output_type
    for messages, _, name in SERVICES
    for method in messages.DESCRIPTOR.services_by_name[name].methods
}


class OddHub(ScriptedHub):
    """Answers by the chance of the input that is tried now."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self.chance = Chance(0)
        self.replies = _Each(self._reply)
        self.streams = _Each(self._stream_of)

    def _reply(self, name: str) -> Callable[[Any], Any]:
        return lambda _: self._message(name)

    def _message(self, name: str) -> Any:
        if self.chance.one_in(8):
            raise self._refusal(CODES)
        return Maker(self.chance, Memory()).message(METHODS[name], 5)

    def _refusal(self, codes: tuple[str, ...]) -> Refusal:
        chance = self.chance
        text = chance.text()[:2000].replace("\x00", "")
        violations = tuple((chance.text()[:200], text) for _ in range(chance.upto(2)))
        retry = chance.of((None, 0.0, 1.0, 1e9))
        return Refusal(chance.of(codes), chance.of(("ODD", "", text[:20])), text, {"a": text}, violations, retry)

    def _stream_of(self, name: str) -> Callable[[Any], AsyncIterator[Any]]:
        async def responses(_: Any) -> AsyncIterator[Any]:
            for _each in range(self.chance.upto(6)):
                yield Maker(self.chance, Memory()).message(METHODS[name], 5)
            raise self._refusal(FINAL)

        return responses


class _Each(dict[str, Any]):
    """Made for each RPC when it is asked for."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> Any:
        return self._make(name)
