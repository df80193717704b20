"""The progress of one request, as its host hears it."""

import math
from typing import Final

from hubbubd.core.jsonrpc import INVALID_PARAMS
from hubbubd.downstream.hosts.host import RequestToHost
from hubbubd.downstream.protocol.messages import MAX_ID, Id, Refusal, notification
from hubbubd.runtime.calls import ProgressEvent

STEP: Final = 1e-6
"""By how much progress grows when the hub has something to say: far less than a server's own progress does."""


class ProgressReporter:
    """Tells a host of progress, if it wants that. What it is told only grows (MCP, basic/utilities/progress).

    Raises Refusal for a request with a wrong token.
    """

    def __init__(self, exchange: RequestToHost) -> None:
        self._tell = exchange.tell
        self._token = _token(exchange)
        self._latest = -1.0

    @property
    def wanted(self) -> bool:
        """Whether the host has asked for it."""
        return self._token is not None

    def report(self, event: ProgressEvent) -> None:
        """Pass on what a server reports; not what is behind what the host knows."""
        if event.progress > self._latest:
            self._notify(event.progress, event.total, event.message)

    def say(self, message: str | None) -> None:
        """Tell the host something of the hub's own, if there is something."""
        if message is None:
            return
        beyond = max(self._latest + STEP, math.nextafter(self._latest, math.inf))
        self._notify(0.0 if self._latest < 0 else beyond, None, message)

    def _notify(self, progress: float, total: float | None, message: str | None) -> None:
        if self._token is None:
            return
        self._latest = progress
        said = {"progressToken": self._token, "progress": progress, "total": total, "message": message}
        present = {key: value for key, value in said.items() if value is not None}
        self._tell(notification("notifications/progress", present))


def _token(exchange: RequestToHost) -> Id | None:
    """Return what names a request in its progress. Raises Refusal: it is repeated in all of it."""
    token = exchange.meta.get("progressToken")
    if token is None or (isinstance(token, str | int | float) and len(str(token)) <= MAX_ID):
        return token
    wrong = f"params._meta.progressToken must be a string or a number of at most {MAX_ID} characters"
    raise Refusal(INVALID_PARAMS, wrong)
