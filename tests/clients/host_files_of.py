"""What the tests of `hubbub mcp install` share: a home without files of hosts, and a hub that opens any endpoint."""

from pathlib import Path
from typing import Any

import pytest

from hubbub.v1 import mcp_pb2


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that the command is to use."""
    for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


async def opens(requests: Any) -> Any:
    """Opens any endpoint."""
    await anext(aiter(requests))
    yield mcp_pb2.ServeResponse(opened=mcp_pb2.ServeResponse.Opened())
