"""MCP: the revisions, their negotiation, and what servers send, validated and repaired."""
