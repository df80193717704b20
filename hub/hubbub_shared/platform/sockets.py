"""What the system knows of a connection."""

import asyncio
import socket
import struct
import sys
from typing import Final

ACKNOWLEDGED_AT: Final = 120
"""Where `tcpi_bytes_acked`, of eight bytes, is in the kernel's `tcp_info` (linux/tcp.h)."""


NO_UNIX_SOCKETS: Final = "Python has no Unix sockets on Windows: reach the hub by HOST:PORT"


def count_acknowledged_bytes(connection: socket.socket) -> int | None:
    """Return how many bytes the other end has acknowledged (tcpi_bytes_acked of Linux); None if that is not known."""
    if sys.platform != "linux":
        return None
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, ACKNOWLEDGED_AT + 8)
    except OSError:
        return None
    return struct.unpack_from("=Q", info, ACKNOWLEDGED_AT)[0] if len(info) == ACKNOWLEDGED_AT + 8 else None


async def open_unix_connection(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection to a Unix socket. Raises OSError, on Windows always."""
    if sys.platform == "win32":
        raise OSError(NO_UNIX_SOCKETS)
    return await asyncio.open_unix_connection(path)


def try_unix_socket(path: str, limit_s: float) -> None:
    """Connect to a Unix socket, and close the connection. Raises OSError, on Windows always."""
    if sys.platform == "win32":
        raise OSError(NO_UNIX_SOCKETS)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(limit_s)
        client.connect(path)
