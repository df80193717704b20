"""Answers each request at port 3000 with 200."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Contented(BaseHTTPRequestHandler):
    """Has nothing to say but that it is there."""

    def do_GET(self) -> None:
        """Answer a request."""
        self.send_response(200)
        self.end_headers()


ThreadingHTTPServer(("0.0.0.0", 3000), Contented).serve_forever()
