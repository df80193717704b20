"""What ships with the hub: the demo's configuration and the description of all settings."""

import re
from pathlib import Path

from hubbubd.config import HubSettings, load_settings, resolve
from hubbubd.config.files import SERVER_KEYS
from hubbubd.config.hub import LIVE_SETTINGS
from hubbubd.config.sections.approvals import ApprovalRule, ApprovalSettings
from hubbubd.config.sections.fleet import FleetSettings
from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.config.sections.store import StoreSettings
from hubbubd.config.servers.server import OAuthConfig

REPOSITORY = Path(__file__).resolve().parents[2]
REFERENCE = (REPOSITORY / "docs" / "configuration.md").read_text()


def test_the_demo_has_four_servers_that_run_from_the_installed_peers() -> None:
    demo = REPOSITORY / "docs" / "demo" / "hubbub.toml"
    servers = load_settings(["--config", str(demo)], {}).servers
    assert [server.name for server in servers] == ["demo", "time", "git", "fetch"]
    assert {resolve(server, {}).command for server in servers} == {".peers/mcp1/bin/python"}
    assert {resolve(server, {"HUBBUB_PEERS": "there"}).command for server in servers} == {"there/mcp1/bin/python"}


def test_the_reference_describes_every_setting_and_no_other() -> None:
    described = re.findall(r"^\| `([a-z]\w*)` \|", REFERENCE, re.MULTILINE)  # variables have capitals
    models = (HubSettings, ApprovalSettings, ApprovalRule, ProfileSettings, StoreSettings, FleetSettings, OAuthConfig)
    tables = (*(model.model_fields for model in models), SERVER_KEYS)
    assert sorted(described) == sorted(name for table in tables for name in table)


def test_the_reference_says_which_settings_want_a_restart() -> None:
    marked = re.findall(r"^\| `(\w+)` \|.* \*Restart\.\* \|$", REFERENCE, re.MULTILINE)
    assert sorted(marked) == sorted(HubSettings.model_fields.keys() - LIVE_SETTINGS)
