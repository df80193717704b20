"""Which requests the library sends again by itself, and after which failures: those that surely do nothing twice."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from hubbub_client.errors import ConnectionLost, HubbubError, Unavailable

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from hubbub_client.transport.discovery import HubAddress

BEHIND: Final = "BEHIND"
# The hub says with these that it has not carried out a call.
CALL_NOT_BEGUN = frozenset(("NOT_OWNER", "OWNER_CHANGING", "MOVED"))
# One member says these of itself, so another member may serve the request.
OF_MEMBER = frozenset((*CALL_NOT_BEGUN, BEHIND, "SHUTTING_DOWN", "STORE_UNAVAILABLE", "OUTCOME_UNKNOWN"))
# These are the same at all members.
_EVERYWHERE = frozenset(("OWNER_CHANGING", "MOVED"))
# The longest pause that a member may ask for, seconds.
LONGEST_PAUSE_S = 2.0

# Requests that change something only the first time: the hub knows them again by an id that the client made.
_IDEMPOTENT: Mapping[str, Callable[[Any], bool]] = {
    "AnswerPendingRequestRequest": lambda request: bool(request.answer_id),
    "ClaimPendingRequestRequest": lambda request: bool(request.claim_id),
    "RenewClaimRequest": lambda _: True,
}
_CALLS = frozenset(("CallMethodRequest", "StartCallRequest"))


def may_repeat(request: "Message", error: HubbubError, *, several: bool) -> bool:
    """Return whether a request that failed may be sent again; `several` says that the hub has several addresses."""
    if isinstance(error, ConnectionLost):
        return not error.sent or _is_harmless(request)
    if not several or error.reason not in OF_MEMBER:
        return False
    if error.reason == BEHIND or _is_harmless(request):  # a member that is behind has not begun
        return True
    return error.reason in CALL_NOT_BEGUN and _has_call_id(request)


def may_retry_with_new_token(request: "Message", error: HubbubError) -> bool:
    """Return whether a request that was refused for its token may be sent again with another one.

    If the token ended while the request was served, the request had begun, so it must be safe to repeat.
    """
    return error.reason != "CREDENTIAL_ENDED" or _is_harmless(request) or _has_call_id(request)


def explain_refusal(error: HubbubError, endpoint: "HubAddress | None") -> HubbubError:
    """Return the error, or Unavailable if another hub at the address of `client.json` has refused the token.

    A hub that was killed leaves that file behind, and its port free for any program. Started again, the hub has the
    same token and writes its new address.
    """
    if error.reason != "TOKEN_INVALID" or endpoint is None or not endpoint.is_from_client_file:
        return error
    return Unavailable(
        f"at {endpoint.address} ({endpoint.source}) answers another hub, which refuses the token of that file; "
        "`hubbub up -d` starts yours",
        reason="HUB_UNREACHABLE",
        metadata={"address": endpoint.address},
    )


def retry_pause_s(error: HubbubError) -> float:
    """Return for how many seconds to wait before a repeat: as the hub asks, 0 if only the connection was lost."""
    return 0.0 if isinstance(error, ConnectionLost) else min(error.retry_after_s or 0.0, LONGEST_PAUSE_S)


def must_leave_address(error: HubbubError) -> bool:
    """Return whether the member at this address is lost or refuses work, so that the next request goes elsewhere."""
    return isinstance(error, ConnectionLost) or error.reason in OF_MEMBER - _EVERYWHERE


def _is_harmless(request: "Message") -> bool:
    """Return whether a request changes nothing at the hub (AIP-131, AIP-132), or nothing the second time."""
    name = request.DESCRIPTOR.name
    is_idempotent = _IDEMPOTENT.get(name)
    return name.startswith(("Get", "List")) if is_idempotent is None else is_idempotent(request)


def _has_call_id(request: Any) -> bool:
    """Return whether a request makes a call under an id, by which the hub knows it again."""
    return request.DESCRIPTOR.name in _CALLS and bool(request.spec.call_id)
