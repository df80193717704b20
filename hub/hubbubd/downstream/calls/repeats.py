"""Calls that are made again while they go on: a host gave up, a person did not, and the host calls again."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from hubbubd.downstream.hosts.host import HostRequest
from hubbubd.downstream.questions.state_tokens import digest

MAX_REMEMBERED: Final = 1000
"""Calls that are remembered: the latest."""

Key = tuple[str, str, str, str]


class RepeatedCalls:
    """The calls of one endpoint, by what was called in whose name. `clock` is a steady one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._calls: OrderedDict[Key, tuple[str, float]] = OrderedDict()

    def find(self, request: HostRequest, server: str, params: Mapping[str, Any], within_s: float) -> str | None:
        """Return the id of an identical call of the same principal, made within `within_s`; None without one."""
        call_id, at = self._calls.get(_call_key(request, server, params), ("", 0.0))
        return call_id if call_id and self._clock() - at <= within_s else None

    def note(self, request: HostRequest, server: str, params: Mapping[str, Any], call_id: str) -> None:
        """Note a call that is made now."""
        key = _call_key(request, server, params)
        self._calls[key] = call_id, self._clock()
        self._calls.move_to_end(key)
        if len(self._calls) > MAX_REMEMBERED:
            self._calls.popitem(last=False)


def _call_key(request: HostRequest, server: str, params: Mapping[str, Any]) -> Key:
    """Return what identical calls of one principal have in common."""
    return request.host.principal.name, server, request.method, digest(params)
