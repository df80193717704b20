"""Any number of streamable HTTP servers in one process, each at a path of its own: /0, /1, and so on.

Each has a session, without which it refuses, and an own stream (a GET) that it holds open and never uses. A GET of
/open returns how many servers have such a stream. The first line on stdout says that all listen.
"""

import os
import re

import orjson
import uvloop
from plain_http import listen, reply_to, response

SESSION = re.compile(rb"\r\nmcp-session-id: *(\S+)", re.IGNORECASE)
STREAM = b"HTTP/1.1 200 -\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

sessions: set[bytes] = set()
streams: set[bytes] = set()
"""Paths of the servers whose own stream is open."""


def answer(head: bytes, body: bytes) -> bytes:
    """The whole HTTP response to a request, or the beginning of the stream."""
    how, path, _ = head.split(b" ", 2)
    if path == b"/open":
        return response(200, len(streams))
    session = SESSION.search(head)
    if session is not None and session[1] not in sessions:
        return response(404)
    if how == b"GET":
        streams.add(path)
        return STREAM
    if how == b"DELETE":
        return response(200)
    message = orjson.loads(body)
    if message.get("method") != "initialize":
        return reply_to(message)
    session = os.urandom(8).hex().encode()
    sessions.add(session)
    return reply_to(message, b"mcp-session-id: %b\r\n" % session)


async def main() -> None:
    """Serves on PORT until the process is ended."""
    listening = await listen(answer)
    print("ready", flush=True)
    await listening.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
