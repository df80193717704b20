"""Questions that are put first to the host which made the call: opened as claimed for it, so that no worker gets them.

The record says from the beginning which hosts of the call are asked, and why others are not.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from hubbubd.core.inbox import request_states as core
from hubbubd.core.inbox.asked_hosts import AskedHost
from hubbubd.core.inbox.host_notes import with_host_decision
from hubbubd.core.inbox.request_states import MAX_CLAIM_S, PendingRequest, RequestState
from hubbubd.errors import FailedPrecondition
from hubbubd.frozen import replaced
from hubbubd.timing.clock import Clock

PREFIX: Final = "reserved_"
"""Prefix of the ids of these claims."""

MAX_DEPARTURES: Final = 10_000
"""The most calls of which it is remembered that their hosts have left: the latest."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WaitingHost:
    """A host that waits for a call, in the name of a principal.

    `reason_not_asked` returns why the host is not asked a question, "" if it is asked. `is_asked_first` returns whether
    the host is asked a question before all others.
    """

    principal: str
    host: str
    reason_not_asked: Callable[[PendingRequest], str]
    is_asked_first: Callable[[PendingRequest], bool]
    claim_s: float = MAX_CLAIM_S
    """Seconds for which a question that this host is asked first is claimed for it, unless it releases the claim."""


class Reservations:
    """The hosts that wait for calls."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hosts: dict[str, list[WaitingHost]] = {}
        """By call, the hosts that wait for it."""
        self._left_at: OrderedDict[str, float] = OrderedDict()
        """By call that still runs, when the last of its hosts left; seconds since the epoch."""

    def note_departure(self, call_id: str, left_at: float | None) -> None:
        """Note when the last host that waited for a call left (`left_at`); None if a host waits for it."""
        self._left_at.pop(call_id, None)
        if left_at is not None:
            self._left_at[call_id] = left_at
            if len(self._left_at) > MAX_DEPARTURES:
                self._left_at.popitem(last=False)

    @contextmanager
    def reserve_for_host(self, call_id: str, waiting_host: WaitingHost) -> Generator[None]:
        """Reserve questions of a call for a host that waits for it, as the host decides, during the block.

        Blocks of one call may overlap.
        """
        self._hosts.setdefault(call_id, []).append(waiting_host)
        try:
            yield
        finally:
            self._hosts[call_id].remove(waiting_host)
            if not self._hosts[call_id]:
                del self._hosts[call_id]

    def reserved_claim_id(self, request: PendingRequest) -> str | None:
        """Return the id of the claim that reserves a question for a host; None if no such claim is valid now."""
        claim = request.valid_claim(self._clock.now())
        return claim.id if claim is not None and claim.id.startswith(PREFIX) else None

    def reserve(self, requests: Sequence[PendingRequest]) -> list[PendingRequest]:
        """Return new requests with notes on the hosts of their calls, claimed for a host that is to be asked first."""
        return [self._reserve_one(request) for request in requests]

    def _reserve_one(self, request: PendingRequest) -> PendingRequest:
        """Return a new request that notes the hosts of its call, asked or not, and when the last of them left.

        The request is claimed for the first host that wants to be asked before all others.
        """
        call_ids = (request.call_id,) if request.call_id else request.candidate_call_ids
        hosts = [each for call_id in call_ids for each in self._hosts.get(call_id, ())]
        if request.call_id and (left_at := self._left_at.get(request.call_id)) is not None:
            request = replaced(request, caller_left_at=left_at)
        now, asked_hosts = self._clock.now(), list[WaitingHost]()
        for each, reason in [(each, each.reason_not_asked(request)) for each in hosts]:
            request = with_host_decision(request, AskedHost(host=each.host, at=now, why_not=reason))
            if not reason:
                asked_hosts.append(each)
        first = next((each for each in asked_hosts if each.is_asked_first(request)), None)
        if first is None:
            return request
        claim_id = f"{PREFIX}{secrets.token_hex(12)}"
        try:
            return core.claim(request, claim_id, first.principal, first.claim_s, now, host=first.host)
        except FailedPrecondition:  # its deadline has passed already
            return request


def quota_principal(request: PendingRequest | None) -> str | None:
    """Return the principal against whose quota the request's claim counts; None without a claim, and for a worker's."""
    claim = request.claim if request is not None and request.state is RequestState.OPEN else None
    return claim.by if claim is not None and not claim.worker else None
