"""Tokens of callers, by the command line against a real hub."""

import sys
from pathlib import Path
from typing import Any

import pytest


async def test_a_caller_has_what_its_token_gives_over_a_restart_too_until_it_is_revoked(
    start_hub: Any, peer_scripts: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asking = {"command": sys.executable, "args": [str(peer_scripts / "asking_server.py"), "stdio"]}
    servers = {"asking": asking | {"protocol": "2025-11-25"}, "other": asking | {"protocol": "2025-11-25"}}
    hub = await start_hub(servers, connected=True)
    made = await hub.hubbub("tokens", "create", "robot", "--role", "caller", "--server", "ask*", "--expires", "1d")
    secret = made.record["secret"]
    me = (await hub.hubbub("--token", secret, "whoami")).record
    assert (me["name"], me["grants"]) == ("robot", [{"role": "caller", "servers": ["ask*"]}])
    seen = (await hub.hubbub("--token", secret, "servers", "list")).lines
    assert [server["name"] for server in seen] == ["asking"]

    await hub.hubbub("--token", secret, "call", "asking", "ask", "--detach", "--call-id", "own")
    await hub.hubbub("call", "asking", "ask", "--detach", "--call-id", "others")
    shown = (await hub.hubbub("--token", secret, "calls", "list")).lines
    assert [call["id"] for call in shown] == ["own"]
    hidden = await hub.hubbub("--token", secret, "calls", "get", "others")
    assert (hidden.status, hidden.error["reason"]) == (1, "CALL_NOT_FOUND")
    denied = await hub.hubbub("--token", secret, "status")
    assert (denied.status, denied.error["reason"]) == (1, "PERMISSION_DENIED")
    named = await hub.hubbub("--token", secret, "--as", "ada", "whoami")
    assert (named.status, named.error["reason"]) == (1, "NAMING_NOT_ALLOWED")

    await hub.terminate()
    hub = await start_hub(servers)
    assert (await hub.hubbub("--token", secret, "whoami")).record["name"] == "robot"
    assert [token["name"] for token in (await hub.hubbub("tokens", "list")).lines] == ["robot"]
    assert (await hub.hubbub("tokens", "revoke", "robot")).status == 0
    ended = await hub.hubbub("--token", secret, "whoami")
    assert (ended.status, ended.error["reason"]) == (1, "TOKEN_INVALID")
    assert secret not in capfd.readouterr().err


async def test_a_span_that_is_none_is_wrong_usage(start_hub: Any) -> None:
    hub = await start_hub({})
    for span in ("30", "0d", "d", "-1d", "1w", "1.5h"):
        refused = await hub.hubbub("tokens", "create", "robot", "--role", "viewer", "--expires", span)
        assert refused.status == 2, span
    assert (await hub.hubbub("tokens", "create", "robot", "--role", "king")).status == 2
    assert (await hub.hubbub("tokens", "create", "robot")).status == 2
