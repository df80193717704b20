"""What a pending request notes about hosts: those that were asked, and whether one waits for its call."""

from hubbubd.core.inbox.asked_hosts import AskedHost, with_host
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.frozen import replaced


def with_host_decision(request: PendingRequest, decision: AskedHost) -> PendingRequest:
    """Return the request with a decision about a host in its `hosts`; the same object if that changes nothing.

    A host that was asked stays recorded as asked. Beyond MAX_HOSTS no host is added.
    """
    hosts = with_host(request.hosts, decision)
    return request if hosts is request.hosts else replaced(request, hosts=hosts)


def with_caller_left(request: PendingRequest, left_at: float | None) -> PendingRequest:
    """Return the request with the time at which its caller hung up; `left_at` is None once the caller is back.

    A closed request is unchanged. A request that has such a time already keeps it.
    """
    left_before = request.caller_left_at
    if request.state is not RequestState.OPEN or (left_before is None) == (left_at is None):
        return request
    return replaced(request, caller_left_at=left_at)
