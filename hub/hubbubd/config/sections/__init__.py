"""Settings of the hub by their table in a file: listeners, store, fleet, MCP endpoint, TLS."""
