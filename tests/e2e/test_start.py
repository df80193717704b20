"""What a start leaves out: it is made up for as soon as the program is up, or when it is needed."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

LIMIT_S = 60
AT_THE_END = "import atexit, gc, sys; atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count() > 10_000))"


@pytest.mark.parametrize(
    ("module", "arguments"),
    [("hubbubd.__main__", ["--help"]), ("hubbub_cli", ["--data-dir", "DIRECTORY", "status"])],
)
def test_garbage_is_looked_for_again_once_all_is_imported(module: str, arguments: list[str], tmp_path: Path) -> None:
    words = [str(tmp_path) if word == "DIRECTORY" else word for word in arguments]
    done = subprocess.run(
        [sys.executable, "-c", f"{AT_THE_END}; from {module} import main; main()", *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.stdout.splitlines()[-1] == "True True", done.stderr


NOT_AT_START = {
    "cryptography": "certificates and tokens of an identity provider",
    "jwt": "tokens of an identity provider",
    "mcp": "servers",
    "mcp_types": "servers",
    "opentelemetry": "telemetry that is on",
    "starlette": "Connect",
    "uvicorn": "Connect and metrics over HTTP",
}
"""What the daemon imports when it is needed, and what for: each takes a noticeable part of a start."""


def test_the_daemon_is_ready_before_it_has_imported_what_only_some_hubs_need(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "hubbubd", "--listen", "127.0.0.1:0", "--data-dir", tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as hub:
        assert hub.stdout is not None
        assert hub.stderr is not None
        assert "ready" in hub.stdout.readline()
        hub.kill()
        assert imported(hub.stderr.read()) & NOT_AT_START.keys() == set()


# What commands import when they talk to a hub, or when they lay out a page.
OF_A_HUB = {"anyio", "asyncio", "google", "grpc", "hubbub", "hubbub_client", "hubbub_frontend", "pydantic"}
OF_A_PAGE = {"markdown_it", "pygments", "rich"}


@pytest.mark.parametrize(
    ("words", "unneeded"),
    [
        (["--version"], OF_A_HUB | OF_A_PAGE),
        (["--help"], OF_A_HUB),
    ],
)
def test_a_command_imports_only_what_it_needs(words: list[str], unneeded: set[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-c", "from hubbub_cli import main; main()", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert done.stdout
    assert imported(done.stderr) & unneeded == set()


def test_the_command_says_the_version_that_is_installed() -> None:
    command = [sys.executable, "-c", "from hubbub_cli import main; main()", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert done.stdout == f"hubbub {version('hubbub')}\n"


def imported(said: str) -> set[str]:
    """The packages in what `-X importtime` writes."""
    modules = {line.rpartition("|")[2].strip() for line in said.splitlines() if line.startswith("import time:")}
    assert len(modules) > 50
    return {module.partition(".")[0] for module in modules}
