"""The settings of the log-in, and what the doctor says of them."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hubbubd.config import HubSettings
from hubbubd.config.cross_checks import check_settings
from hubbubd.errors import ConfigError
from hubbubd.runtime.diagnostics import checks

OIDC = {"oidc_issuer": "https://login.example", "oidc_audience": "hub"}
HERE = {"mcp_listen": "127.0.0.1:0"}


@pytest.mark.parametrize(
    ("settings", "is_on"),
    [(HERE, True), (HERE | {"mcp_login": False}, False), (HERE | OIDC, False), (OIDC | {"mcp_login": False}, False)],
)
def test_hosts_log_in_at_the_hub_unless_they_do_elsewhere(
    tmp_path: Path, settings: dict[str, Any], is_on: bool
) -> None:
    hub = HubSettings(data_dir=tmp_path, **settings)
    check_settings(hub, ())
    assert hub.has_login is is_on


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (HERE | OIDC | {"mcp_login": True}, "mcp_login"),
        ({"mcp_login": True}, "mcp_login"),
        ({"mcp_public_url": "https://hub.example"}, "mcp_public_url"),
    ],
)
def test_a_log_in_that_nobody_reaches_or_that_is_elsewhere_is_an_error(
    tmp_path: Path, settings: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_settings(HubSettings(data_dir=tmp_path, **settings), ())
    assert refused.value.key == key


@pytest.mark.parametrize("url", ["https://hub.example", "https://hub.example/", "https://hub.example/mcp"])
def test_a_public_address_has_no_path(tmp_path: Path, url: str) -> None:
    assert HubSettings(data_dir=tmp_path, mcp_public_url=url).mcp_public_url == "https://hub.example"


@pytest.mark.parametrize(
    "url",
    ["http://hub.example", "hub.example", "https://hub.example/hub", "https://hub.example?x", "https://u@hub.example"],
)
def test_another_public_address_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(ValidationError, match="must be an"):
        HubSettings(data_dir=tmp_path, mcp_public_url=url)


@pytest.mark.parametrize(
    ("settings", "is_told"),
    [
        ({"mcp_hosts": ("hub.example",)}, True),
        ({"mcp_hosts": ("hub.example",), "mcp_login": False}, False),
        ({"mcp_hosts": ("hub.example",), "mcp_public_url": "https://hub.example"}, False),
        ({}, False),
    ],
)
async def test_the_doctor_names_the_address_that_is_missing_behind_a_proxy(
    tmp_path: Path, settings: dict[str, Any], is_told: bool
) -> None:
    found = await checks.check_common(HubSettings(data_dir=tmp_path, **HERE, **settings), (), {})
    told = [finding for finding in found if finding.about == "mcp_login"]
    assert bool(told) is is_told
    assert all('mcp_public_url = "https://hub.example"' in finding.advice for finding in told)
