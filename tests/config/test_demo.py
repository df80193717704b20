"""What ships with the hub: the demo's configuration and the description of all settings."""

from pathlib import Path

import pytest

from hubbubd.config import HubSettings, load_settings, resolve
from hubbubd.config.files import SERVER_KEYS

REPOSITORY = Path(__file__).resolve().parents[2]
REFERENCE = (REPOSITORY / "docs" / "configuration.md").read_text()


def test_the_demo_has_four_servers_that_run_from_the_installed_peers() -> None:
    demo = REPOSITORY / "docs" / "demo" / "hubbub.toml"
    servers = load_settings(["--config", str(demo)], {}).servers
    assert [server.name for server in servers] == ["demo", "time", "git", "fetch"]
    assert {resolve(server, {}).command for server in servers} == {".peers/mcp1/bin/python"}
    assert {resolve(server, {"HUBBUB_PEERS": "there"}).command for server in servers} == {"there/mcp1/bin/python"}


@pytest.mark.parametrize("name", [*HubSettings.model_fields, *SERVER_KEYS])
def test_every_setting_is_described_in_the_reference(name: str) -> None:
    assert f"| `{name}` |" in REFERENCE
