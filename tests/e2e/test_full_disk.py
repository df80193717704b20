"""A hub that is stopped on a disk that is really full starts again with all that it acknowledged."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from hubbub_client import ServerSpec, Unavailable

from .conftest import LIMIT_S, RunningHub, running

SIZE_MB = 6


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system in memory of a few MB. Tests are skipped where it may not be mounted, but never in CI."""
    directory = tmp_path / "small"
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(directory)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say("this process may not mount a file system; root may")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


async def fill(hub: RunningHub) -> set[str]:
    """Adds servers until the disk is full; the names of those that the hub acknowledged."""
    added: set[str] = set()
    try:
        while True:
            name = f"server-{len(added)}"
            spec = ServerSpec(name=name, url="http://127.0.0.1:9/mcp", timeout_message="x" * 30_000)
            await hub.client.servers.add(spec)
            added.add(name)
    except Unavailable:
        return added


@pytest.mark.parametrize("way", ["terminate", "kill"])
async def test_what_was_acknowledged_is_there_after_a_stop_on_a_full_disk(
    way: str, small: Path, tmp_path: Path
) -> None:
    config = tmp_path / "hub.toml"
    config.write_text('[hub]\nallow_hosts = ["127.0.0.1"]\nmax_servers = 5000\n')
    arguments = ["--config", str(config), "--listen", "127.0.0.1:0", "--data-dir", str(small / "data")]
    ballast = small / "ballast"
    with anyio.fail_after(2 * LIMIT_S):
        async with running(arguments) as hub:
            room = shutil.disk_usage(small).free
            ballast.write_bytes(b"x" * (room - 1_000_000))
            added = await fill(hub)
            await (hub.terminate() if way == "terminate" else hub.kill())
        assert added
        ballast.unlink()
        async with running(arguments) as hub:
            assert {server.name for server in await hub.client.servers.list()} == added
