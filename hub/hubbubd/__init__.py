"""The Hubbub daemon: one hub for many MCP servers."""
