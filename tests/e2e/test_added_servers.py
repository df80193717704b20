"""Servers that somebody adds over the API: a hub starts what its operator allows, and nothing else."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub_client import InvalidArgument, NotFound, PermissionDenied, ServerSpec

from .conftest import LIMIT_S, POLL_S

WRITER = "import json, os, sys; open(sys.argv[1], 'w').write(json.dumps([sys.argv[2:], dict(os.environ), os.getcwd()]))"
"""Says what it was given, and is no MCP server."""


@dataclass
class Yard:
    """A hub that lets callers start one server, and a file that appears when anything else has run."""

    hub: Any
    script: str
    canary: Path

    @property
    def shell(self) -> str:
        """What a shell would do."""
        return f"touch {self.canary}"

    async def refused(self, reason: str = "COMMAND_NOT_ALLOWED", **spec: Any) -> PermissionDenied:
        """Fails unless both adding and updating are refused, and nothing has changed."""
        before = await self.hub.client.servers.get("good")
        for name, change in (("evil", self.hub.client.servers.add), ("good", self.hub.client.servers.update)):
            with pytest.raises(PermissionDenied) as caught:
                await change(ServerSpec(**{"name": name, **spec}))
            assert caught.value.reason == reason
        with pytest.raises(NotFound):
            await self.hub.client.servers.get("evil")
        after = await self.hub.client.servers.get("good")
        assert (after.state, after.pid) == (before.state, before.pid) == ("connected", before.pid)
        assert not self.canary.exists()
        return caught.value


@pytest.fixture(scope="module")
async def yard(start_shared_hub: Any, peer_scripts: Path, tmp_path_factory: pytest.TempPathFactory) -> Yard:
    script = str(peer_scripts / "plain_server.py")
    directory = tmp_path_factory.mktemp("yard")
    allowed = {"command": sys.executable, "args": [script, "*"], "env": ["APP_*"], "cwd": [str(directory)]}
    hub = await start_shared_hub(hub={"trust_local": False, "allow_commands": [allowed], "allow_variables": ["HOME"]})
    await hub.client.servers.add(ServerSpec(name="good", command=sys.executable, args=[script, "stdio"]))
    await hub.connected("good")
    return Yard(hub, script, directory / "canary")


async def test_shell_syntax_in_an_allowed_argument_reaches_the_program_as_it_is(yard: Yard) -> None:
    args = [yard.script, f"; {yard.shell} $({yard.shell}) `{yard.shell}` | sh"]
    await yard.hub.client.servers.add(ServerSpec(name="plain", command=sys.executable, args=args))
    await yard.hub.connected("plain")
    await yard.hub.client.servers.remove("plain")
    assert not yard.canary.exists()


async def test_a_reference_brings_in_neither_a_command_nor_a_secret(yard: Yard) -> None:
    for reference in (
        "${SHELL}",
        "${PATH}",
        "${env:SHELL}",
        "${NONE:-/bin/sh}",
        "${file:/etc/hostname}",
        "${keyring:a/b}",
    ):
        await yard.refused("VARIABLE_NOT_ALLOWED", command=reference)
        await yard.refused("VARIABLE_NOT_ALLOWED", command=sys.executable, args=[yard.script, reference])
        await yard.refused("VARIABLE_NOT_ALLOWED", url="https://mcp.example.com/", headers={"X": reference})
        await yard.refused("VARIABLE_NOT_ALLOWED", url=f"https://mcp.example.com/{reference}")
    await yard.refused(command="${HOME}", args=[yard.script, "stdio"])
    with pytest.raises(InvalidArgument):
        await yard.hub.client.servers.add(ServerSpec(name="evil", command="${"))


async def test_a_link_that_was_swapped_after_the_start_is_not_followed(
    start_hub: Any, tmp_path: Path, peer_scripts: Path
) -> None:
    link, canary = tmp_path / "tool", tmp_path / "canary"
    script = tmp_path / "good"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {peer_scripts / 'plain_server.py'}\n")
    script.chmod(0o755)
    link.symlink_to(script)
    hub = await start_hub(hub={"trust_local": False, "allow_commands": [str(link)]})
    await hub.client.servers.add(ServerSpec(name="tool", command=str(link)))
    await hub.connected("tool")
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {canary}\n")
    evil.chmod(0o755)
    link.unlink()
    link.symlink_to(evil)
    with pytest.raises(PermissionDenied, match="not the file that it was"):
        await hub.client.servers.update(ServerSpec(name="tool", command=str(link)))
    await hub.client.servers.disconnect("tool")
    await hub.client.servers.connect("tool")
    (refused,) = await hub.watched(hub.client.servers.watch(["tool"]), lambda s: s.error is not None, 1)
    assert refused.error.code == "COMMAND_NOT_ALLOWED"
    assert not canary.exists()


async def test_a_server_that_is_no_longer_allowed_is_not_started_by_the_next_hub(
    start_hub: Any, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    allowed = {"command": sys.executable, "args": ["**"]}
    spec = ServerSpec(name="old", command=sys.executable, args=["-c", WRITER, str(out)])
    hub = await start_hub(hub={"trust_local": False, "allow_commands": [allowed]})
    await hub.client.servers.add(spec)
    await appears(out)
    await hub.terminate()
    out.unlink()
    hub = await start_hub(hub={"trust_local": False, "allow_commands": [sys.executable]})
    (old,) = await hub.watched(hub.client.servers.watch(["old"]), lambda s: s.error is not None, 1)
    assert old.error.code == "COMMAND_NOT_ALLOWED"
    assert not out.exists()


async def test_an_added_server_keeps_its_variables_and_headers_over_a_restart_and_the_store_never_has_them(
    start_hub: Any, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    allowed = {"command": sys.executable, "args": ["**"], "env": ["APP_*"]}
    spec = ServerSpec(
        name="kept",
        command=sys.executable,
        args=["-c", WRITER, str(out), "; $(id)"],
        env={"APP_KEY": "canary-of-the-api"},
    )
    hub = await start_hub(hub={"trust_local": False, "allow_commands": [allowed]})
    await hub.client.servers.add(spec)
    await appears(out)
    await hub.terminate()
    out.unlink()
    hub = await start_hub(hub={"trust_local": False, "allow_commands": [allowed]})
    args, environ, cwd = await appears(out)
    assert (args, environ["APP_KEY"], cwd) == (["; $(id)"], "canary-of-the-api", str(Path.cwd()))
    assert not [path for path in hub.data_dir.glob("hubbub.db*") if b"canary-of-the-api" in path.read_bytes()]
    await hub.client.servers.remove("kept")
    assert "canary" not in (hub.data_dir / "tokens.json").read_text()


async def appears(path: Path) -> Any:
    """What a process has written there, once it has."""
    with anyio.fail_after(LIMIT_S):
        while True:
            try:
                return json.loads(path.read_text())
            except (FileNotFoundError, ValueError):
                await anyio.sleep(POLL_S)
