"""What a pending request notes about hosts: those that were asked, and whether one waits for its call."""

from hubbubd.core.inbox.asked_hosts import AskedHost, with_host
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.frozen import replaced


def with_host_decision(request: PendingRequest, decision: AskedHost) -> PendingRequest:
    """Return the request with a note of what was decided about a host; unchanged if the decision is no news.

    What was noted before about an asked host stays, and there is an end to how many hosts are noted (MAX_HOSTS).
    """
    hosts = with_host(request.hosts, decision)
    return request if hosts is request.hosts else replaced(request, hosts=hosts)


def with_caller_left(request: PendingRequest, left_at: float | None) -> PendingRequest:
    """Return the request with the time at which its caller hung up (`left_at`), or without one if the caller is there.

    A closed request is unchanged. So is a request that says the same already: the first time of leaving stays.
    """
    left_before = request.caller_left_at
    if request.state is not RequestState.OPEN or (left_before is None) == (left_at is None):
        return request
    return replaced(request, caller_left_at=left_at)
