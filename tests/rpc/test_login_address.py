"""The address that `hubbub mcp install HOST --login` and `hubbub mcp login` give to hosts, as a hub says it."""

from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from hubbub_cli.host_entry.entry_trial import find_login_url

from .mcp_host import stage


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({}, "{base}/mcp"),
        ({"mcp_public_url": "https://hub.example"}, "https://hub.example/mcp"),
        ({"mcp_login": False}, None),
        ({"mcp_login": False, "mcp_public_url": "https://hub.example"}, None),
    ],
)
async def test_a_hub_says_where_hosts_log_in(settings: dict[str, Any], address: str | None, tmp_path: Path) -> None:
    async with stage(tmp_path, **settings) as made:
        found = await to_thread.run_sync(find_login_url, f"{made.base}/mcp")
        expected = address and address.format(base=made.base)
        assert found == expected
        if expected:
            assert f"{made.hub.visitors.address}/mcp" == expected
