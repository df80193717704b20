"""Why a call is refused, or ends without a result."""

from hubbubd.core.calls import Call
from hubbubd.errors import AlreadyExists, Category, FailedPrecondition, Fault, HubError, PeerError


def cancelled(message: str, code: str = "CALL_CANCELLED") -> Fault:
    """The fault of a call that somebody ended on purpose."""
    return Fault(code=code, category=Category.CANCELLED, message=message)


SHUTTING_DOWN = cancelled("the hub is shutting down", "SHUTTING_DOWN")
"""The fault of a call that the end of the hub has broken off."""


def not_connected(server: str, given_up: Fault | None) -> FailedPrecondition:
    """The refusal for a server that is not to be connected, or on which the hub gave up."""
    if given_up is None:
        return FailedPrecondition(f"{server} is disconnected; connect it first", reason="SERVER_NOT_CONNECTED")
    return FailedPrecondition(
        f"{server} is disconnected, the hub gave up on it: {given_up.message}",
        reason="SERVER_NOT_CONNECTED",
        metadata={"server": server, "cause": given_up.code},
    )


def reused(call: Call) -> AlreadyExists:
    """The refusal of an id that another request has."""
    return AlreadyExists(f"call id {call.id!r} names another request", reason="CALL_ID_REUSED")


def of_server(exc: PeerError) -> Fault:
    """The fault of a call to which the server replied with an error."""
    return Fault(code="SERVER_ERROR", category=Category.SERVER, message=exc.message, details=exc.details)


def of_hub(exc: HubError) -> Fault:
    """The fault of a call that the hub itself could not go on with."""
    return Fault(code=exc.reason, category=Category.SERVER, message=exc.message, details=dict(exc.metadata))
