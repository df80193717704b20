"""The gate of hosts: streamable HTTP, the bridge's stream, and who may use them."""
