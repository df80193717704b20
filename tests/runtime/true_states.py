"""What must hold between calls and the requests that they caused, whatever has happened."""

from hubbubd.core.filters import CallFilter, RequestFilter
from hubbubd.core.inbox.request_states import Delivery, Origin, PendingRequest, RequestEventType, RequestState
from hubbubd.errors import NotFound
from hubbubd.runtime.hub import Hub


def check_causes(hub: Hub) -> None:
    """No open request is of an ended call unless it says so, and no answer was `delivered` to an ended call."""
    for request in hub.inbox.select(RequestFilter()):
        gone = [
            call_id for call_id in (request.call_id, *request.candidate_call_ids) if call_id and _gone(hub, call_id)
        ]
        if request.state is RequestState.OPEN:
            assert not gone or (request.cause_ended and request.call_id in gone), request
        if request.delivery is Delivery.DELIVERED and request.origin is not Origin.TASK:
            assert not _ended_before_delivery(hub, request), request
        assert request.cause_ended is None or request.call_id is None or gone, "its call is under way"
    for call in hub.calls.select(CallFilter()):
        for request_id in call.perhaps_pending_ids:
            assert call.id in hub.inbox.get(request_id).candidate_call_ids


def _gone(hub: Hub, call_id: str) -> bool:
    try:
        return hub.calls.get(call_id).state.ended
    except NotFound:
        return True


def _ended_before_delivery(hub: Hub, request: PendingRequest) -> bool:
    if request.call_id is None or not _gone(hub, request.call_id):
        return False
    try:
        ended_at = hub.calls.get(request.call_id).completed_at or 0.0
    except NotFound:
        return False  # nobody knows any more
    return any(event.what is RequestEventType.DELIVERED and event.at > ended_at for event in request.moments)
