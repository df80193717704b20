"""A server over HTTP in a thread of its own, whose connections end while the loop has no time to notice."""

import json
import socket
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

import pytest

from .conftest import LIMIT_S, Scripted

IN_REAL_TIME = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""For a test whose server is a thread: the loop seems idle while that works, and its clock would go too fast."""


class Threaded(ABC):
    """Reads whole requests. `serve` answers one, and says whether its connection goes on."""

    def __init__(self) -> None:
        self.calls = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/mcp"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @abstractmethod
    def serve(self, connection: socket.socket, message: dict[str, Any], *, is_call: bool) -> bool:
        """Answers a message; a call is counted already."""

    def stop(self) -> None:
        """Ends it."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(LIMIT_S)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        buffer = b""
        with connection, suppress(OSError):
            while chunk := connection.recv(65536):
                buffer += chunk
                head, found, rest = buffer.partition(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or b"0")
                if not found or len(rest) < size:
                    continue
                buffer = rest[size:]
                message: dict[str, Any] = json.loads(rest[:size] or b"{}")
                is_call = message.get("method") == "tools/call"
                self.calls += is_call  # before the test can know of its answer
                if not self.serve(connection, message, is_call=is_call):
                    return


def whole(message: dict[str, Any]) -> bytes:
    """The right HTTP response to a message."""
    if "id" not in message:
        return b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
    response = Scripted().respond(message)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(response.body)}\r\n\r\n"
    return head.encode() + bytes(response.body)
