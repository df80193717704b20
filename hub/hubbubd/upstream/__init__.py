"""Connections to MCP servers. The only room that imports `mcp`; what the rest needs is in `ports`."""
