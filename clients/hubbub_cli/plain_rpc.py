"""One RPC without gRPC, since importing gRPC takes longer than all the rest of a completion.

It speaks as much of HTTP/2 (RFC 9113) as one request and its response need, over a socket without TLS. It reads no
headers: a refusal is a response without a message. The connection ends before the hub misses an acknowledgement.
"""

import socket
import time
from contextlib import closing

from hubbub_client.numbers import LAST_PORT, whole_text

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Frames, their flags, and a setting.
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 7, 8
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
INITIAL_WINDOW_SIZE = 4
# Of flow control: the window that a connection begins with, and the largest.
FIRST_WINDOW, LARGEST_WINDOW = 2**16 - 1, 2**31 - 1
FRAME_HEAD, MESSAGE_HEAD = 9, 5
PREFIX = 0x7F
"""The largest length that one byte holds (RFC 7541, 5.1)."""

MOST_BYTES = 64 * 1024 * 1024
SHORTEST_S = 0.001


def ask(target: str, rpc: str, token: str | None, request: bytes, limit_s: float) -> bytes:
    """Return the response to a request; `rpc` is `PACKAGE.SERVICE/METHOD`. Raises OSError if there is none."""
    until = time.monotonic() + limit_s
    with closing(_connected(target, limit_s)) as connection:
        connection.sendall(_request(rpc, token, request))
        return _message(connection, until)


def _connected(target: str, limit_s: float) -> socket.socket:
    if not target.startswith("unix:"):
        host, _, port = target.rpartition(":")
        return socket.create_connection((host.strip("[]"), whole_text(port, LAST_PORT) or 0), limit_s)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(limit_s)
    try:
        connection.connect(target.removeprefix("unix:"))
    except OSError:
        connection.close()
        raise
    return connection


def _request(rpc: str, token: str | None, request: bytes) -> bytes:
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/{rpc}",
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    if token:
        headers["authorization"] = f"Bearer {token}"
    window = INITIAL_WINDOW_SIZE.to_bytes(2) + LARGEST_WINDOW.to_bytes(4)
    message = b"\0" + len(request).to_bytes(4) + request
    return b"".join(
        (
            PREFACE,
            _frame(SETTINGS, 0, 0, window),
            _frame(WINDOW_UPDATE, 0, 0, (LARGEST_WINDOW - FIRST_WINDOW).to_bytes(4)),
            # Each header is a literal that is not indexed (RFC 7541, 6.2.2).
            _frame(HEADERS, END_HEADERS, 1, b"".join(b"\0" + _text(k) + _text(v) for k, v in headers.items())),
            _frame(DATA, END_STREAM, 1, message),
        )
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _text(text: str) -> bytes:
    """Return a text with its length before it (RFC 7541, 5.2)."""
    length, rest = bytearray(), len(text) - PREFIX
    if rest < 0:
        return bytes((len(text),)) + text.encode("ascii")
    length.append(PREFIX)
    while rest > PREFIX:
        length.append(rest & PREFIX | 0x80)
        rest >>= 7
    return bytes((*length, rest)) + text.encode("ascii")


def _message(connection: socket.socket, until: float) -> bytes:
    body = bytearray()
    with connection.makefile("rb") as reading:
        flags = 0
        while not flags & END_STREAM:
            connection.settimeout(max(until - time.monotonic(), SHORTEST_S))
            head = reading.read(FRAME_HEAD)
            payload = reading.read(int.from_bytes(head[:3]))
            if len(head) < FRAME_HEAD or head[3] in (RST_STREAM, GOAWAY) or len(body) > MOST_BYTES:
                break
            # Other frames than those of the response have another meaning of this flag.
            flags = head[4] if head[3] in (DATA, HEADERS) else 0
            if head[3] == DATA:
                body += payload[1 : len(payload) - payload[0]] if flags & PADDED else payload
    message = bytes(body[MESSAGE_HEAD:])
    if len(body) < MESSAGE_HEAD or body[0] or int.from_bytes(body[1:MESSAGE_HEAD]) != len(message):
        raise ConnectionError("the hub sent no message")
    return message
