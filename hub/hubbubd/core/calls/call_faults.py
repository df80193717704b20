"""Errors of calls: refusals (a HubError for the caller), and ends without a result (a Fault in the call's record)."""

from hubbubd.core.calls.call_states import Call
from hubbubd.errors import AlreadyExists, Category, FailedPrecondition, Fault, HubError, PeerError


def cancelled_fault(message: str, code: str = "CALL_CANCELLED") -> Fault:
    """Return the fault of a call that was ended on purpose."""
    return Fault(code=code, category=Category.CANCELLED, message=message)


SHUTTING_DOWN = cancelled_fault("the hub is shutting down", "SHUTTING_DOWN")
"""The fault of a call that the hub's shutdown ended."""


def not_connected_error(server: str, given_up: Fault | None) -> FailedPrecondition:
    """Return the refusal of a call whose server is disconnected.

    `given_up` is the fault after which the hub stopped to retry; None if somebody has disconnected the server.
    """
    if given_up is None:
        return FailedPrecondition(f"{server} is disconnected; connect it first", reason="SERVER_NOT_CONNECTED")
    return FailedPrecondition(
        f"{server} is disconnected, the hub gave up on it: {given_up.message}",
        reason="SERVER_NOT_CONNECTED",
        metadata={"server": server, "cause": given_up.code},
    )


def reused_id_error(call: Call) -> AlreadyExists:
    """Return the refusal of an idempotency key (`call_id`) that was used for another request."""
    return AlreadyExists(f"call id {call.id!r} names another request", reason="CALL_ID_REUSED")


def server_fault(error: PeerError) -> Fault:
    """Return the fault of a call that the server answered with a JSON-RPC error."""
    return Fault(code="SERVER_ERROR", category=Category.SERVER, message=error.message, details=error.details)


def hub_fault(error: HubError) -> Fault:
    """Return the fault of a call that failed inside the hub."""
    return Fault(code=error.reason, category=Category.SERVER, message=error.message, details=dict(error.metadata))
