"""Answers each request at port 3000 with 200."""

import signal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Contented(BaseHTTPRequestHandler):
    """Has nothing to say but that it is there."""

    def do_GET(self) -> None:
        """Answer a request."""
        self.send_response(200)
        self.end_headers()


# The first process of a container is not ended by a signal that it does not handle.
signal.signal(signal.SIGTERM, signal.default_int_handler)
ThreadingHTTPServer(("0.0.0.0", 3000), Contented).serve_forever()
