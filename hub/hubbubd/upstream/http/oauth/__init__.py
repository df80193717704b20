"""OAuth access to servers (MCP authorization)."""
