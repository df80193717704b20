"""MCP as hosts speak it: messages, and what each revision has."""
