"""The entry of the hub at a host: a token of its own, an endpoint that is there, and what the host has beside it."""

import json
from pathlib import Path
from typing import Any

import pytest

from hubbub.v1 import admin_pb2

from .host_files_of import home, opens

__all__ = ["home"]


def grant(server: str) -> admin_pb2.AccessGrant:
    return admin_pb2.AccessGrant(role=admin_pb2.ACCESS_ROLE_CALLER, servers=[server])


class TokensOfAHub:
    """The tokens that a scripted hub has, by secret."""

    def __init__(self, hub: Any) -> None:
        client = json.loads((hub.data_dir / "client.json").read_text())
        (hub.data_dir / "client.json").write_text(json.dumps({**client, "mcp": "http://127.0.0.1:7/mcp"}))
        self.given: dict[str, admin_pb2.ApiToken] = {}
        self._hub = hub
        hub.replies = {
            "ListTokens": lambda _: admin_pb2.ListTokensResponse(tokens=[*self.given.values()]),
            "CreateToken": self._create,
            "RevokeToken": self._revoke,
            "GetSelf": self._self,
        }
        hub.streams["Serve"] = opens

    def _create(self, request: Any) -> Any:
        secret = f"hbt_{len(self._hub.requests('CreateToken'))}"
        self.given[secret] = admin_pb2.ApiToken(name=request.name, grants=request.grants)
        self._hub.also = {*self.given}
        return admin_pb2.CreateTokenResponse(secret=secret)

    def _revoke(self, request: Any) -> Any:
        self.given = {secret: each for secret, each in self.given.items() if each.name != request.name}
        self._hub.also = {*self.given}
        return admin_pb2.RevokeTokenResponse()

    def _self(self, _: Any) -> Any:
        token = self.given[self._hub.seen[-1][2]["authorization"].removeprefix("Bearer ")]
        return admin_pb2.GetSelfResponse(caller=admin_pb2.Caller(name=token.name, grants=token.grants))


async def test_over_http_a_host_gets_a_token_of_its_own_which_may_only_call_what_it_is_to_see(
    hub: Any, hubbub: Any, home: Path
) -> None:
    tokens = TokensOfAHub(hub)
    file = home / ".claude.json"
    file.write_text("{}")
    file.chmod(0o644)
    ran = await hubbub("mcp", "install", "claude-code", "--http", "--server", "a/b")
    assert ran.status == 0, ran.err
    entry = json.loads(file.read_text())["mcpServers"]["hubbub"]
    assert entry == {
        "type": "http",
        "url": "http://127.0.0.1:7/mcp/s/a%2Fb",
        "headers": {"Authorization": "Bearer hbt_1"},
    }
    assert file.stat().st_mode & 0o777 == 0o600
    assert tokens.given["hbt_1"].name.startswith("mcp-claude-code-")
    assert [*tokens.given["hbt_1"].grants] == [grant("a/b")]


async def test_a_second_run_keeps_the_token_and_another_file_gets_another(
    hub: Any, hubbub: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = TokensOfAHub(hub)
    words = ("mcp", "install", "claude-code", "--http")
    for _ in range(2):
        assert (await hubbub(*words)).status == 0
    assert [*tokens.given] == ["hbt_1"]
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "project"))
    assert (await hubbub(*words)).status == 0
    assert [*tokens.given] == ["hbt_1", "hbt_2"]
    assert len({token.name for token in tokens.given.values()}) == 2
    assert hub.requests("RevokeToken") == []


async def test_a_token_that_may_do_something_else_is_replaced_and_that_is_said(
    hub: Any, hubbub: Any, home: Path
) -> None:
    tokens = TokensOfAHub(hub)
    await hubbub("mcp", "install", "codex", "--http")
    ran = await hubbub("mcp", "install", "codex", "--http", "--server", "one")
    assert "sessions with it end, too" in ran.err
    assert [*tokens.given] == ["hbt_2"]
    assert [*tokens.given["hbt_2"].grants] == [grant("one")]
    assert "hbt_2" in (home / ".codex/config.toml").read_text()


async def test_a_profile_that_nobody_knows_is_refused(hub: Any, hubbub: Any, home: Path, refusal: Any) -> None:
    async def refuses(requests: Any) -> Any:
        await anext(aiter(requests))
        raise refusal("NOT_FOUND", "PROFILE_NOT_FOUND")
        yield

    hub.streams["Serve"] = refuses
    ran = await hubbub("mcp", "install", "cursor", "--profile", "nosuch")
    assert ran.status == 1
    (hub.data_dir / "client.json").unlink()
    ran = await hubbub("mcp", "install", "cursor", "--profile", "nosuch")
    assert ran.status == 1
    assert "has no profile of this name (it has none)" in ran.error["message"]
    config = home / ".config/hubbub/hubbub.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[mcp.profiles.nosuch]\n")
    assert (await hubbub("mcp", "install", "cursor", "--profile", "nosuch")).status == 0
