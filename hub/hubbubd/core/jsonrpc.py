"""JSON-RPC 2.0 error codes (section 5.1), and those that MCP adds."""

from typing import Final

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
"""The reserved codes of JSON-RPC 2.0, section 5.1."""

URL_ELICITATION_REQUIRED: Final = -32042
"""MCP 2025-11-25, client/elicitation: URLs must be visited before the request can succeed."""

REQUEST_CANCELLED: Final = -32800
"""The error of `tasks/result` for a cancelled task. MCP leaves the code open; this is that of LSP 3.17."""
