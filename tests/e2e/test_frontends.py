"""The programs of docs/frontends work as they are shown."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

import anyio
import pytest

from .conftest import BIN, LIMIT_S, RunningHub, environment

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs/frontends"
COMPILED_S = 600
"""Go compiles gRPC, too."""


def shown(page: str, language: str) -> list[str]:
    """The blocks of a page that are in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (PAGES / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
async def hub(start_hub: Callable[..., Any], mcp1_python: str) -> RunningHub:
    """A hub with two servers of the demo."""
    demo = {"command": mcp1_python, "args": [str(ROOT / "docs/demo/server.py")]}
    time = {"command": mcp1_python, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]}
    return await start_hub({"demo": demo, "time": time}, connected=True)


async def ran(command: list[str], at: Path, limit_s: float = LIMIT_S, **variables: str) -> str:
    """What a command prints that goes well."""
    with anyio.fail_after(limit_s):
        done = await anyio.run_process(
            command, cwd=at, env=environment() | variables, stdout=PIPE, stderr=STDOUT, check=False
        )
    assert done.returncode == 0, done.stdout.decode()
    return done.stdout.decode()


async def test_the_programs_in_python_call_answer_and_watch(hub: RunningHub, tmp_path: Path) -> None:
    answering, watching = shown("python", "python")
    (tmp_path / "answering.py").write_text(answering)
    (tmp_path / "watching.py").write_text(watching)
    at = {"HUBBUB_DATA_DIR": str(hub.data_dir)}
    assert await ran([sys.executable, "answering.py"], tmp_path, **at) == "Ordered: 2 x soup\n"
    await hub.client.start_tool("demo", "order_lunch")
    await hub.asked()
    said = await ran([sys.executable, "watching.py"], tmp_path, **at)
    assert said == "demo asks: What would you like for lunch?\nthat is all for now\n"


async def test_the_program_in_go_calls(
    hub: RunningHub, go_offline: Callable[[Path], dict[str, str]], tmp_path: Path
) -> None:
    (command,) = shown("go", "sh")
    (program,) = shown("go", "go")
    source = tmp_path / "src"
    (source / "program").mkdir(parents=True)
    (source / "program/main.go").write_text(program)
    (source / "protos").symlink_to(ROOT / "protos")
    protoc = command.replace("protoc ", f"{BIN / 'python'} -m grpc_tools.protoc ", 1)
    await ran(["bash", "-c", protoc], source)
    built = tmp_path / "program"
    await ran(["go", "build", "-o", str(built), "program"], source, COMPILED_S, **go_offline(tmp_path))
    said = await ran([str(built)], tmp_path, HUBBUB_DATA_DIR=str(hub.data_dir))
    assert r"\"timezone\": \"UTC\"" in said
