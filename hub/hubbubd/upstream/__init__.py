"""Connections to MCP servers. The only package that imports `mcp`; what the rest of the hub needs is in `ports`."""
