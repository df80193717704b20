"""JSON-RPC 2.0 error codes (section 5.1), and those that MCP adds."""

from typing import Final

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
"""The reserved codes of JSON-RPC 2.0, section 5.1."""

URL_ELICITATION_REQUIRED: Final = -32042
"""MCP 2025-11-25, client/elicitation: URLs must be visited before the request can succeed."""

REQUEST_CANCELLED: Final = -32800
"""The error of `tasks/result` for a cancelled task. MCP leaves the code open; this is that of LSP 3.17."""

HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
"""MCP 2026-07-28, basic: a header says something else than the body; the request needs a capability that its client did
not declare; the revision is not served."""

HUB_FAILED: Final = -32000
"""A call that has no result, for a reason that is not the server's; from the range for implementations."""
