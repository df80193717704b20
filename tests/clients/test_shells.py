"""Completion in the shells themselves: bash, zsh and fish, with the names of a hub."""

import contextlib
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from .world import furnish

LIMIT_S = 60
BIN = Path(sys.executable).parent

# What is typed, and what a TAB makes of it: the only word that fits, or some of several.
TYPED = [
    ("hubbub inb", {"inbox"}),
    ("hubbub inbox sh", {"show"}),
    ("hubbub queue ti", {"time"}),
    ("hubbub queue ", {"demo", "git", "time"}),
    ("hubbub call time get", {"get_current_time"}),
    ("hubbub prompt demo simple", {"simple-prompt"}),
    ("hubbub inbox show req_14", {"req_140d5e"}),
    ("hubbub calls get lun", {"lunch"}),
    ("hubbub tokens revoke re", {"reports"}),
    ("hubbub explain SERVER_NOT_F", {"SERVER_NOT_FOUND"}),
    ("hubbub help inbox answ", {"answer"}),
    ("hubbub help status nosuch a", set()),
    ("hubbub help nosuch inbox a", set()),
    ("hubbub catalog show time conv", {"convert_time"}),
    ("hubbub catalog show --kind prompt demo simple", {"simple-prompt"}),
    ("hubbub inbox list --data-d", {"--data-dir"}),
    ("hubbub inbox list --state op", {"open"}),
    ("hubbub calls list -o js", {"json"}),
    ("hubbub queue nosuch", set()),
]


@pytest.fixture
def environment(hub: Any, refusal: Any, tmp_path_factory: Any) -> dict[str, str]:
    """Where a shell finds the command, and that finds the hub."""
    furnish(hub, refusal)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HUBBUB")}
    return inherited | {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HUBBUB_DATA_DIR": str(hub.data_dir),
        "HOME": str(hub.data_dir),
        "TERM": "dumb",
        "EMPTY": str(tmp_path_factory.mktemp("empty")),
    }


def need(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


async def said(command: list[str], env: dict[str, str]) -> str:
    """What a command prints, where there are no files to complete; nothing may go to its stderr."""
    with anyio.fail_after(LIMIT_S):
        done = await anyio.run_process(command, env=env, check=False, cwd=env["EMPTY"])
    assert done.stderr == b"", done.stderr.decode()
    return done.stdout.decode()


BASH = """
eval "$(_HUBBUB_COMPLETE=source_bash hubbub)"
COMP_WORDS=({words}); COMP_CWORD={at}
_hubbub_completion hubbub
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(("typed", "fits"), TYPED)
async def test_bash_completes(environment: dict[str, str], typed: str, fits: set[str]) -> None:
    bash = need("bash")
    *before, last = typed.split(" ")
    words = " ".join([*before, last or "''"])
    out = await said([bash, "--norc", "-c", BASH.format(words=words, at=len(before))], environment)
    assert set(out.split()) == fits


@pytest.mark.parametrize(("typed", "fits"), TYPED)
async def test_fish_completes(environment: dict[str, str], typed: str, fits: set[str]) -> None:
    fish = need("fish")
    program = f"_HUBBUB_COMPLETE=source_fish hubbub | source; complete -C '{typed}'"
    out = await said([fish, "--no-config", "-c", program], environment)
    assert {line.split("\t")[0] for line in out.splitlines()} == fits


@contextlib.contextmanager
def at_a_terminal(command: list[str], env: dict[str, str]) -> Iterator[int]:
    """A program at a terminal of its own; it is ended with the terminal."""
    main, other = pty.openpty()
    process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=env, start_new_session=True)
    os.close(other)
    try:
        yield main
    finally:
        process.kill()
        process.wait()
        os.close(main)


def read_until(terminal: int, sign: str) -> str:
    """What a terminal shows until a text that fits comes."""
    shown, deadline = "", time.monotonic() + LIMIT_S
    while not re.search(sign, shown):
        ready, _, _ = select.select([terminal], [], [], max(deadline - time.monotonic(), 0))
        assert ready, f"{sign} did not come, but: {shown!r}"
        shown += os.read(terminal, 65536).decode(errors="replace")
    return shown


@pytest.mark.parametrize(("typed", "fits"), [each for each in TYPED if len(each[1]) == 1])
async def test_zsh_completes(environment: dict[str, str], typed: str, fits: set[str]) -> None:
    zsh = need("zsh")

    def work() -> None:
        with at_a_terminal([zsh, "-f", "-i"], environment) as terminal:
            source = 'eval "$(_HUBBUB_COMPLETE=source_zsh hubbub)"'
            os.write(
                terminal, f"PS1='READY> '; autoload -Uz compinit; compinit -D -u; {source}; echo DO''NE\n".encode()
            )
            read_until(terminal, "DONE\\s+.*READY> ")
            os.write(terminal, f"{typed}\t".encode())
            (word,) = fits
            read_until(terminal, re.escape(f"{typed.rpartition(' ')[0]} {word}"))

    await anyio.to_thread.run_sync(work)


@pytest.mark.parametrize("shell", ["bash", "fish"])
async def test_without_a_hub_nothing_is_offered_and_nothing_said(
    hub: Any, environment: dict[str, str], shell: str
) -> None:
    await hub.stop()
    need(shell)
    if shell == "bash":
        out = await said(["bash", "--norc", "-c", BASH.format(words="hubbub queue ti", at=2)], environment)
    else:
        program = "_HUBBUB_COMPLETE=source_fish hubbub | source; complete -C 'hubbub queue ti'"
        out = await said(["fish", "--no-config", "-c", program], environment)
    assert out.strip() == ""
