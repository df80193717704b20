"""docs/start.md, typed from its top to its bottom in an empty home."""

import json
import os
import re
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT

import anyio

from .conftest import BIN, environment

ROOT = Path(__file__).parents[2]
LIMIT_S = 120
NOT_TYPED = {"pipx install .": "tests/deploy/test_packages.py does, in a copy of the clone"}
"""The commands that are not typed, and why."""

PAGE = (ROOT / "docs/start.md").read_text()
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]


class Home:
    """An empty home, with a terminal in a folder that has the server of the page."""

    def __init__(self, at: Path) -> None:
        self.folder = at / "folder"
        self.folder.mkdir()
        shutil.copy(ROOT / "docs/examples/deploy_gate/server.py", self.folder)
        kept = {name: value for name, value in environment().items() if not name.startswith("XDG_")}
        self._environ = kept | {
            "HOME": str(at),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "HUBBUBD_LISTEN": "127.0.0.1:0",
        }

    async def types(self, command: str) -> str:
        """What a command prints that must go well."""
        with anyio.fail_after(LIMIT_S):
            done = await anyio.run_process(
                ["bash", "-c", await self._as_typed(command)],
                cwd=self.folder,
                env=self._environ,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=STDOUT,
                check=False,
            )
        said = done.stdout.decode()
        assert done.returncode == 0, f"{command}\n{said}"
        return said

    async def _as_typed(self, command: str) -> str:
        """The command with the reader's id, without a terminal that could be asked, and without the network."""
        typed = command.replace("pipx run", sys.executable)
        typed = "hubbub init --yes" if typed == "hubbub init" else typed
        if "REQUEST" in typed:
            typed = typed.replace("REQUEST", await self._open_request())
        return typed

    async def _open_request(self) -> str:
        """The id that a reader copies from `inbox list`."""
        with anyio.fail_after(LIMIT_S):
            while not (listed := await self.types("hubbub --json inbox list --state open")):
                pass
        return str(json.loads(listed.splitlines()[0])["id"])


@asynccontextmanager
async def home(at: Path) -> AsyncGenerator[Home]:
    """A home in which no hub is left running."""
    made = Home(at)
    try:
        yield made
    finally:
        await made.types("hubbub down")


async def test_the_page_leads_from_nothing_to_a_call_approved_and_a_question_answered(tmp_path: Path) -> None:
    async with home(tmp_path) as reader:
        said = [await reader.types(command) for command in COMMANDS if command not in NOT_TYPED]
    assert NOT_TYPED.keys() <= set(COMMANDS)
    assert "is approved by local" in "".join(said)
    assert "shop 1.4.2 is deployed (Tested)" in "".join(said)
    assert "hubbub" in json.loads((tmp_path / ".claude.json").read_text())["mcpServers"]
