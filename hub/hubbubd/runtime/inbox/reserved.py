"""Questions that whoever made the call is asked first: they are opened as claimed for it, so no worker takes them."""

import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from hubbubd.clock import Clock
from hubbubd.core import inbox as core
from hubbubd.core.inbox import MAX_CLAIM_S, PendingRequest
from hubbubd.errors import FailedPrecondition

PREFIX: Final = "reserved_"
"""What the ids of these claims begin with."""


@dataclass(frozen=True, slots=True, eq=False)
class _Caller:
    """Somebody who waits for a call; `chosen` says which questions are its own first."""

    by: str
    chosen: Callable[[PendingRequest], bool]
    for_s: float


class Reserved:
    """The calls whose questions are reserved, while somebody is there to be asked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: dict[str, list[_Caller]] = {}

    @contextmanager
    def for_caller(
        self, call_id: str, by: str, chosen: Callable[[PendingRequest], bool], for_s: float = MAX_CLAIM_S
    ) -> Generator[None]:
        """Have those of a call's questions that are `chosen` opened as claimed by a principal, during the block.

        The claims last `for_s` seconds, MAX_CLAIM_S at most, if nobody gives them back before. Blocks of one call may
        overlap.
        """
        caller = _Caller(by, chosen, for_s)
        self._calls.setdefault(call_id, []).append(caller)
        try:
            yield
        finally:
            self._calls[call_id].remove(caller)
            if not self._calls[call_id]:
                del self._calls[call_id]

    def claim_of(self, request: PendingRequest) -> str | None:
        """Return the id of the claim with which a question was reserved, if it still is."""
        claim = request.holder(self._clock.now())
        return claim.id if claim is not None and claim.id.startswith(PREFIX) else None

    def claimed(self, requests: Sequence[PendingRequest]) -> list[PendingRequest]:
        """Return new requests, claimed where they are reserved."""
        return [self._claimed(request) for request in requests]

    def _claimed(self, request: PendingRequest) -> PendingRequest:
        callers = self._calls.get(request.call_id or "", ())
        caller = next((each for each in callers if each.chosen(request)), None)
        if caller is None:
            return request
        try:
            return core.claim(request, f"{PREFIX}{secrets.token_hex(12)}", caller.by, caller.for_s, self._clock.now())
        except FailedPrecondition:  # its deadline has passed already
            return request
