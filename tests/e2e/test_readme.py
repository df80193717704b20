"""Every command of the README's tour, run as written against the demo."""

import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

ROOT = Path(__file__).parents[2]
LIMIT_S = 120
SETTING_UP = (". .venv/bin/activate", "export HUBBUB_DATA_DIR=.hubbub")


def tour() -> list[str]:
    blocks = re.findall(r"^```sh tour\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()]


@asynccontextmanager
async def demo(data_dir: Path, environ: dict[str, str]) -> AsyncIterator[None]:
    """What `make run` starts, with a data directory and a port of its own."""
    command = [sys.executable, "docs/demo/run.py", "--listen", "127.0.0.1:0", "--data-dir", str(data_dir)]
    started = await anyio.open_process(command, cwd=ROOT, env=environ, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    async with started as process:
        assert process.stdout is not None
        try:
            with anyio.fail_after(LIMIT_S):
                await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 1 << 16)
            yield
            process.send_signal(signal.SIGTERM)
            with anyio.fail_after(LIMIT_S):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.terminate()


async def shell(command: str, environ: dict[str, str]) -> tuple[int, str, str]:
    with anyio.fail_after(LIMIT_S):
        done = await anyio.run_process(["bash", "-c", command], cwd=ROOT, env=environ, check=False, stdin=DEVNULL)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


async def open_request(environ: dict[str, str]) -> str:
    """The id that a reader copies from `inbox list`."""
    with anyio.fail_after(LIMIT_S):
        while True:
            _, out, _ = await shell("hubbub --json inbox list --state open", environ)
            if out:
                return str(json.loads(out.splitlines()[0])["id"])


async def test_the_tour_works_as_written(tmp_path: Path) -> None:
    commands = tour()
    assert tuple(commands[:2]) == SETTING_UP
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HUBBUB_DATA_DIR": str(tmp_path / "data"),
        "HUBBUB_PEERS": os.environ.get("HUBBUB_PEERS", str(ROOT / ".peers")),
    }
    async with demo(tmp_path / "data", environ):
        said: dict[str, str] = {}
        for command in commands[2:]:
            typed = command.replace("REQUEST", await open_request(environ)) if "REQUEST" in command else command
            status, out, err = await shell(typed, environ)
            assert status == 0, f"{command}\n{out}\n{err}"
            said[command] = out
    assert '"dish": "soup"' in said[next(c for c in commands if "soup" in c)]
    assert "An old silent pond" in said["hubbub calls get haiku"]
    assert "completed" in said["hubbub calls watch trip"]
