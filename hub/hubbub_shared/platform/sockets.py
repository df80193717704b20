"""What the system knows of a connection."""

import socket
import struct
import sys
from typing import Final

ACKNOWLEDGED_AT: Final = 120
"""Where `tcpi_bytes_acked`, of eight bytes, is in the kernel's `tcp_info` (linux/tcp.h)."""


def acknowledged_bytes(connection: socket.socket) -> int | None:
    """Return how many bytes the other end has acknowledged (tcpi_bytes_acked of Linux); None if that is not known."""
    if sys.platform != "linux":
        return None
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, ACKNOWLEDGED_AT + 8)
    except OSError:
        return None
    return struct.unpack_from("=Q", info, ACKNOWLEDGED_AT)[0] if len(info) == ACKNOWLEDGED_AT + 8 else None
