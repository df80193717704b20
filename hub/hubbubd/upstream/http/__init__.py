"""Streamable HTTP and HTTP with SSE: transports, one pool of connections for all servers, and OAuth."""

from hubbubd.upstream.http.public_documents import get_json_text
from hubbubd.upstream.http.transports import HttpTransports

__all__ = ["HttpTransports", "get_json_text"]
