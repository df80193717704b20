"""A streamable HTTP server that costs next to nothing: it answers each POST with JSON, and offers no other stream."""

import orjson
import uvloop
from plain_http import listen, reply_to, response


def answer(head: bytes, body: bytes) -> bytes:
    """The whole HTTP response to a request."""
    return reply_to(orjson.loads(body)) if head.startswith(b"POST") else response(405)


async def main() -> None:
    """Serves on PORT until the process is ended."""
    await (await listen(answer)).serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
