"""What a pending request notes about hosts: those that were asked, and whether one waits for its call."""

from hubbubd.core.inbox.asked_hosts import AskedHost, with_host
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.frozen import replaced


def host_noted(request: PendingRequest, decided: AskedHost) -> PendingRequest:
    """Return the request with what was decided about a host. One that was asked stays so."""
    hosts = with_host(request.hosts, decided)
    return request if hosts is request.hosts else replaced(request, hosts=hosts)


def caller_noted(request: PendingRequest, left_at: float | None) -> PendingRequest:
    """Return the request with when its caller hung up; None if it is there. Unchanged unless open."""
    known = request.caller_left_at
    if request.state is not RequestState.OPEN or (known is None) == (left_at is None):
        return request
    return replaced(request, caller_left_at=left_at)
