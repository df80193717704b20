"""Every command of docs/cli.md, run as written; and every command there is, with its example and its place there."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.main import get_command

from hubbub_client.cli.app import app

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs/cli.md").read_text()
LIMIT_S = 120
# Documented elsewhere.
ELSEWHERE = {"tui"}


def commands(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield path.strip(), command
        return
    for name, each in below.items():
        yield from commands(each, f"{path} {name}")


ALL = dict(commands(get_command(app)))


@pytest.mark.parametrize("name", ALL)
def test_a_command_has_an_example_and_a_place_in_the_document(name: str) -> None:
    assert ALL[name].epilog.startswith(f"Example: hubbub {name}")
    group, _, last = name.rpartition(" ")
    if name not in ELSEWHERE:
        assert re.search(rf"\b{name}\b", DOCUMENT) or (group in DOCUMENT and f"`{last}`" in DOCUMENT)


async def test_the_document_works_as_written(start_hub: Any, mcp1_python: str, tmp_path: Path) -> None:
    hub = await start_hub(
        {
            "demo": {"command": mcp1_python, "args": [str(ROOT / "docs/demo/server.py")]},
            "time": {"command": mcp1_python, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]},
            "git": {"command": mcp1_python, "args": ["-m", "mcp_server_git", "--repository", str(ROOT)]},
        }
    )
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HUBBUB_DATA_DIR": str(hub.data_dir),
    }
    said: dict[str, str] = {}
    for block in re.findall(r"^```sh cli\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE):
        for command in block.splitlines():
            typed = command.replace("COPY", str(tmp_path / "copy.db"))
            if "REQUEST" in typed:
                typed = typed.replace("REQUEST", (await hub.asked())[0].id)
            with anyio.fail_after(LIMIT_S):
                done = await anyio.run_process(["bash", "-c", typed], cwd=ROOT, env=env, check=False)
            assert done.returncode == 0, f"{command}\n{done.stdout.decode()}\n{done.stderr.decode()}"
            said[command] = done.stdout.decode()
    assert "completed" in said["hubbub calls watch lunch"]
    doctor = await hub.hubbub("doctor")
    assert (doctor.status, {line["good"] for line in doctor.lines}) == (0, {True})
