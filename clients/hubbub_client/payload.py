"""JSON documents as bytes, the form in which MCP payloads cross the API. Integers keep their value at any size."""

import json
from typing import Any


def loads(data: bytes) -> Any:
    """The value of a JSON document; None for an absent one (no bytes). Raises ValueError when it is not JSON."""
    return json.loads(data) if data else None


def dumps(value: object) -> bytes:
    """The JSON document of a value. Raises TypeError or ValueError for a value that JSON cannot express."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
