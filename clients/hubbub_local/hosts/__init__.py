"""MCP hosts on this machine: their files of settings, and the servers that are written there."""
