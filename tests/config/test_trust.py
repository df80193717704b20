"""What a server may do that the owner of the hub's machine added, and what a refusal says would allow it."""

import json
import tomllib
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.config import Confinement, HubSettings, ServerConfig
from hubbubd.errors import PermissionDenied

UVX = {"name": "one", "command": "uvx", "args": ["mcp-server-time"]}


def policy(environ: dict[str, str] | None = None, **settings: Any) -> Confinement:
    return Confinement.from_settings(HubSettings.model_validate({"data_dir": "unused", **settings}), environ or {})


def reason(confinement: Confinement, environ: dict[str, str] | None = None, **config: Any) -> str:
    """Why a server may not be added; empty if it may."""
    return confinement.find_refusal(ServerConfig.model_validate({"name": "one", **config}), environ or {})


def advice(confinement: Confinement, **config: Any) -> str | None:
    """The TOML that a refusal advises."""
    with pytest.raises(PermissionDenied) as refused:
        confinement.check(ServerConfig.model_validate({"name": "one", **config}), {})
    return refused.value.metadata.get("toml")


def test_the_owner_may_start_any_command_with_any_arguments_variables_and_directory() -> None:
    mine = policy().with_trust(True)
    config = {**UVX, "env": {"PATH": "/srv", "KEY": "${KEY}"}, "cwd": "/srv"}
    assert reason(mine, {"KEY": "k"}, **config) == ""
    resolved = mine.resolve(ServerConfig.model_validate(config), {"KEY": "k"})
    assert (resolved.command, resolved.env["KEY"].get_secret_value()) == ("uvx", "k")
    assert reason(policy(), {"KEY": "k"}, **UVX) == "COMMAND_NOT_ALLOWED"


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "10.1.2.3", "172.20.0.1", "192.168.1.10", "100.101.102.103", "fd12::7", "8.8.8.8"]
)
def test_the_owners_server_may_be_on_loopback_and_in_private_networks(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    assert reason(policy().with_trust(True), url=f"http://{host}:8080/mcp") == ""
    named = policy().with_trust(True).find_host_rules(ServerConfig(name="one", url="http://nas.lan/mcp"))
    named.check("nas.lan", [ip_address(address)])


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "169.254.1.1", "fe80::1", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200"),
        *("168.63.129.16", "0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "::ffff:169.254.169.254"),
        *("64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "192.0.0.192"),
    ],
)
def test_not_even_the_owners_server_may_be_where_clouds_serve_credentials(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    assert reason(policy().with_trust(True), url=f"http://{host}/latest") == "HOST_NOT_ALLOWED"
    assert advice(policy().with_trust(True), url=f"http://{host}/latest") is None
    named = policy().with_trust(True).find_host_rules(ServerConfig(name="one", url="http://metadata.example/mcp"))
    with pytest.raises(PermissionDenied):
        named.check("metadata.example", [ip_address("8.8.8.8"), ip_address(address)])


def test_only_the_servers_own_host_may_be_private_not_one_that_it_names() -> None:
    hosts = policy().with_trust(True).find_host_rules(ServerConfig(name="one", url="https://mcp.example.com/mcp"))
    hosts.check("MCP.example.com.", [ip_address("10.0.0.1")])
    for elsewhere in ("login.example.com", "127.0.0.1", "localhost"):
        with pytest.raises(PermissionDenied):
            hosts.check(elsewhere, [ip_address("127.0.0.1")])


def test_the_servers_own_host_need_not_be_in_the_list_and_any_other_must() -> None:
    mine = policy(allow_hosts=["other.example"]).with_trust(True)
    assert reason(mine, url="https://mcp.example.com/mcp") == ""
    hosts = mine.find_host_rules(ServerConfig(name="one", url="https://mcp.example.com/mcp"))
    with pytest.raises(PermissionDenied):
        hosts.check_host("login.example.com")


def test_what_the_operator_denies_is_denied_to_the_owner_too() -> None:
    mine = policy(deny_hosts=["10.0.0.0/8", "*.evil.example"]).with_trust(True)
    assert reason(mine, url="http://10.0.0.1/mcp") == "HOST_NOT_ALLOWED"
    assert reason(mine, url="http://a.evil.example/mcp") == "HOST_NOT_ALLOWED"


def test_an_owner_who_is_not_trusted_is_held_to_the_lists() -> None:
    mine = policy(trust_local=False).with_trust(True)
    assert reason(mine, **UVX) == "COMMAND_NOT_ALLOWED"
    assert reason(mine, url="http://127.0.0.1/mcp") == "HOST_NOT_ALLOWED"


def test_what_only_files_may_set_stays_so_for_the_owner() -> None:
    assert reason(policy().with_trust(True), url="https://x.example/mcp", ca="/ca.pem") == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        ({}, UVX),
        ({}, {"command": "/srv/a b/server", "env": {"KEY": "v"}, "cwd": "/srv/x"}),
        ({"allow_commands": ["npx", {"command": "uvx", "args": ["other"]}]}, UVX),
        ({}, {"url": "http://127.0.0.1:18499/mcp"}),
        ({"allow_hosts": ["*.example.com"]}, {"url": "https://mcp.corp.example/mcp"}),
        ({"allow_variables": ["A"]}, {"url": "https://mcp.example.com/mcp", "headers": {"X": "${TOKEN:-}"}}),
    ],
)
def test_what_a_refusal_advises_to_paste_allows_the_server_and_keeps_what_was_allowed(
    tmp_path: Path, settings: dict[str, Any], config: dict[str, Any]
) -> None:
    text = (advice(policy(**settings), **config) or "").replace('["..."]', json.dumps(config.get("args")))
    advised = tomllib.loads(text)["hub"]
    (name,) = advised
    assert len(advised[name]) == 1 + len(settings.get(name) or (["public"] if name == "allow_hosts" else []))
    (tmp_path / "uvx").touch(mode=0o700)
    after = policy({"PATH": str(tmp_path)}, **settings | advised)
    after.check(ServerConfig.model_validate({"name": "one", **config}), {})


# Without references: `${` is refused before the policy is asked.
PLAIN_TEXT = st.text(st.characters(codec="utf-8")).filter(lambda text: "${" not in text)


@given(st.lists(PLAIN_TEXT, min_size=1, max_size=3), PLAIN_TEXT.filter(bool))
def test_no_argument_is_repeated_and_any_directory_can_be_pasted(args: list[str], cwd: str) -> None:
    if "**" not in args:
        found = advice(policy(), command="server", args=args, cwd=cwd)
        (entry,) = tomllib.loads(found or "")["hub"]["allow_commands"]
        assert entry == {"command": "server", "args": ["..."], "cwd": [cwd]}


def test_nothing_is_advised_that_would_allow_more_or_that_no_list_takes() -> None:
    assert advice(policy(), command="server", args=["**"]) is None
    assert advice(policy(), command="bin/server") is None
    assert advice(policy(), url="https://x.example/mcp", headers={"X": "${file:/etc/passwd}"}) is None
    assert advice(policy(deny_hosts=["10.0.0.0/8"]), url="http://10.0.0.1/mcp") is None
