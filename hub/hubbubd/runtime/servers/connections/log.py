"""Log lines of connections: one per transition, failures as warnings with cause and time of the retry."""

import logging
from collections.abc import Mapping

import structlog

from hubbubd.core.servers.connection_states import ConnectionEvent, ServerConnection
from hubbubd.errors import Category, Fault

# Level and text of each event. ERROR is for faults of the hub itself, so nothing a server does has that level.
MESSAGES: Mapping[ConnectionEvent, tuple[int, str]] = {
    ConnectionEvent.CONNECT: (logging.INFO, "server connecting"),
    ConnectionEvent.HANDSHAKE_COMPLETE: (logging.INFO, "server connected"),
    ConnectionEvent.TIMEOUT: (logging.WARNING, "server connection timed out"),
    ConnectionEvent.TRANSPORT_ERROR: (logging.WARNING, "server connection failed"),
    ConnectionEvent.CONNECTION_LOST: (logging.WARNING, "server connection lost"),
    ConnectionEvent.SESSION_LOST: (logging.WARNING, "server session lost; renewed at once"),
    ConnectionEvent.RECONNECT: (logging.INFO, "server reconnecting"),
    ConnectionEvent.GIVE_UP: (logging.WARNING, "server given up; `hubbub servers connect` retries"),
    ConnectionEvent.DISCONNECT: (logging.INFO, "server disconnecting"),
    ConnectionEvent.CLEANUP_COMPLETE: (logging.INFO, "server disconnected"),
}

log = structlog.get_logger(__name__)


def log_transition(
    server: str, event: ConnectionEvent, after: ServerConnection, now: float, fault: Fault | None
) -> None:
    """Log a transition. `after` is the connection's new record, `now` is in seconds since the epoch."""
    level, text = MESSAGES[event]
    fields: dict[str, object] = {"server": server, "happened": event.value, "state": after.state.value}
    # A requested disconnect has a fault as well, but only for the calls that it ends.
    cause = fault or (after.fault if event is ConnectionEvent.GIVE_UP else None)
    if cause is not None and cause.category is not Category.CANCELLED:
        fields |= {"code": cause.code, "message": cause.message}
        stderr = cause.details.get("stderr")
        if isinstance(stderr, (list, tuple)) and stderr:
            fields["stderr"] = stderr[-1]
    if after.next_retry_at is not None:
        fields["retry_in_s"] = round(max(after.next_retry_at - now, 0.0), 1)
    log.log(level, text, **fields)
