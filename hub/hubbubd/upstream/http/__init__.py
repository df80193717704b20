"""Streamable HTTP and HTTP with SSE: transports, one pool of connections for all servers, and OAuth."""
