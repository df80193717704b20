"""The entry of the hub in the settings of an MCP host."""
