"""Error codes of JSON-RPC 2.0 (section 5.1), and those that MCP adds."""

from typing import Final

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
"""The reserved codes of JSON-RPC 2.0, section 5.1."""

URL_ELICITATION_REQUIRED: Final = -32042
"""MCP 2025-11-25, client/elicitation: pages must be visited before the request can succeed."""

REQUEST_CANCELLED: Final = -32800
"""What `tasks/result` of a cancelled task answers. MCP leaves the code open; it is the one that LSP 3.17 has for it."""
