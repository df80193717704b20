"""The bridge `hubbub mcp`: an MCP server over stdio, which carries messages between its host and the hub.

Hosts start it before the hub runs, and kill it by closing its standard input. So it answers the handshake from what
the hub said last, waits for the hub, and says in responses what is wrong. It imports gRPC only after that.
"""
