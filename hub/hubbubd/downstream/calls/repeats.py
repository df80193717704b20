"""Calls that are made again while they go on: a host gave up waiting for a person, and calls again."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from hubbubd.downstream.hosts.host import HostRequest
from hubbubd.downstream.questions.state_tokens import digest

MAX_REMEMBERED: Final = 1000
"""Calls that are remembered: the latest."""

Key = tuple[str, str, str, str]


class RepeatedCalls:
    """The latest calls of one endpoint, by principal, server, method and params. `clock` is a steady one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._calls: OrderedDict[Key, tuple[str, float]] = OrderedDict()

    def find(self, request: HostRequest, server: str, params: Mapping[str, Any], within_s: float) -> str | None:
        """Return the id of an identical call of the same principal, made within `within_s`; None without one."""
        call_id, called_at = self._calls.get(_make_key(request, server, params), ("", 0.0))
        return call_id if call_id and self._clock() - called_at <= within_s else None

    def note(self, request: HostRequest, server: str, params: Mapping[str, Any], call_id: str) -> None:
        """Remember a call that is made now; beyond MAX_REMEMBERED the oldest is dropped."""
        key = _make_key(request, server, params)
        self._calls[key] = call_id, self._clock()
        self._calls.move_to_end(key)
        if len(self._calls) > MAX_REMEMBERED:
            self._calls.popitem(last=False)


def _make_key(request: HostRequest, server: str, params: Mapping[str, Any]) -> Key:
    """Return the key that identical calls of one principal share."""
    return request.host.principal.name, server, request.method, digest(params)
