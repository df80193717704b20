"""Streamable HTTP and HTTP with SSE: transports, one pool of connections for all servers, and OAuth."""

from hubbubd.upstream.http.over_http import OverHttp

__all__ = ["OverHttp"]
