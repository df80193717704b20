"""Which answers a server of the tests has received, one JSON line each in the file that JOURNAL names."""

import json
import os
from typing import Any


def note(server: str, answer: Any) -> None:
    """Keeps an answer as it came; without JOURNAL nothing is kept. One write, so that a line is whole or not there."""
    if path := os.environ.get("JOURNAL"):
        line = json.dumps({"server": server, "answer": answer}) + "\n"
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, line.encode())
        os.close(descriptor)
