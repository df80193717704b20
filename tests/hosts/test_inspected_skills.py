"""Skills behind a hub, as the Inspector verifies them: entries, frontmatter, and the digest of each file."""

import json
import os
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
import pytest

from ..e2e.conftest import RunningHub, start_shared_hub

__all__ = ["start_shared_hub"]

LIMIT_S = 60
ERAS = {"first": "legacy", "second": "modern"}


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any, peer_scripts: Path) -> RunningHub:
    """A hub with two servers that have the same skills."""
    command = {"command": sys.executable, "args": [str(peer_scripts / "skills_server.py"), "stdio"]}
    hub = await start_shared_hub(dict.fromkeys(ERAS, command), hub={"mcp_listen": "127.0.0.1:0"})
    await hub.connected(*ERAS)
    for name in ERAS:
        await hub.client.catalog.refresh(name)
    return hub


@pytest.mark.parametrize(("path", "many"), [("", 8), ("/s/first", 4)])
async def test_the_inspector_verifies_skills_of_a_profile_and_of_one_server(
    hub: RunningHub, npm_hosts: Path, tmp_path: Path, path: str, many: int
) -> None:

    async def inspect(era: str, *words: str) -> tuple[str, str]:
        program = [str(npm_hosts / "node"), str(npm_hosts / "node_modules/.bin/inspector"), "--cli"]
        to_hub = ["--transport", "http", "--protocol-era", era, "--header", f"Authorization: Bearer {hub.token}"]
        command = [*program, f"{hub.ready['mcp']}{path}", *to_hub, "--method", *words]
        env = os.environ | {"MCP_CATALOG_PATH": str(tmp_path / f"{era}.json")}
        with anyio.fail_after(LIMIT_S):
            ended = await anyio.run_process(command, check=False, stdout=PIPE, stderr=PIPE, env=env)
        assert ended.returncode == 0, ended.stderr.decode()
        return ended.stdout.decode(), ended.stderr.decode()

    async def verify(era: str) -> None:
        reports = [json.loads(line) for line in (await inspect(era, "skills/list", "--verify"))[0].splitlines()]
        assert len(reports) == many
        assert [each for each in reports if not each["ok"] or each["frontmatter"]] == []
        assert {each["outcome"] for each in reports} == {"verified", "unverifiable"}

    async def get_unlisted() -> None:
        uri = f"skill://{'' if path else 'second/'}unlisted/SKILL.md"
        (report,) = (await inspect("modern", "skills/get", "--uri", uri, "--verify"))[0].splitlines()
        assert json.loads(report)["outcome"] == "verified"

    async def read_directory() -> None:
        uri = f"skill://{'' if path else 'second/'}git-workflow"
        listed = json.loads((await inspect("modern", "resources/directory/read", "--uri", uri))[0])
        assert [each["uri"] for each in listed["resources"]] == [f"{uri}/SKILL.md", f"{uri}/references"]

    async with anyio.create_task_group() as tasks:
        for each in ERAS.values():
            tasks.start_soon(verify, each)
        tasks.start_soon(get_unlisted)
        tasks.start_soon(read_directory)
