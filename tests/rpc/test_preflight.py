"""What the doctor says of servers that a hub starts: what they lack of its environment, and what only shells read."""

from pathlib import Path
from typing import Any

import pytest

from hubbubd.config import HubSettings, ServerConfig
from hubbubd.runtime.diagnostics import checks
from hubbubd.runtime.diagnostics.checks import Finding, Severity

PROXIES = {"HTTPS_PROXY": "http://proxy.example:8080", "no_proxy": "localhost", "PATH": "/usr/bin:/bin"}


async def found(tmp_path: Path, hub: dict[str, Any], server: dict[str, Any]) -> dict[str, Finding]:
    settings = HubSettings.model_validate({"data_dir": tmp_path, **hub})
    servers = [ServerConfig.model_validate({"name": "one", **server})]
    return {each.about: each for each in await checks.check_common(settings, servers, PROXIES)}


async def test_variables_of_the_network_that_servers_do_not_get_are_offered(tmp_path: Path) -> None:
    offered = (await found(tmp_path, {}, {"command": "true"}))["server_variables"]
    assert offered.severity is Severity.WARN
    assert offered.advice == 'server_variables = ["HTTPS_PROXY", "no_proxy"] in [hub]'
    assert "proxy.example" not in offered.message


@pytest.mark.parametrize(
    ("hub", "server"),
    [
        ({"server_variables": ["HTTPS_PROXY", "no_proxy"]}, {"command": "true"}),
        ({}, {"command": "true", "env": {"HTTPS_PROXY": "x", "no_proxy": "y"}}),
        ({}, {"url": "http://127.0.0.1:9/mcp"}),
    ],
)
async def test_variables_that_servers_get_or_do_not_need_are_not_offered(
    hub: dict[str, Any], server: dict[str, Any], tmp_path: Path
) -> None:
    assert "server_variables" not in await found(tmp_path, hub, server)


async def test_what_only_a_shell_replaces_is_named(tmp_path: Path) -> None:
    named = (await found(tmp_path, {}, {"command": "true", "args": ["~/notes"]}))["server one"]
    assert (named.severity, named.advice) == (Severity.WARN, "write ${HOME}/")
