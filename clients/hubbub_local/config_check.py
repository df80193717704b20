"""Tries a configuration before it is used: `hubbubd --check-config` on a file beside the real one."""

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WRONG_CONFIG_STATUS: Final = 2
"""What `hubbubd` exits with for a wrong configuration; it warns of anything else."""

LIMIT_S: Final = 120


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a configuration, as the hub says it."""

    message: str
    refused: bool
    """Whether the hub refuses the file. Else it starts, but a server refers to what is missing, at least from here."""


def find_problem(text: str, file: Path, environ: Mapping[str, str]) -> Problem | None:
    """Return what is wrong with a text that is to be the content of a file; None if nothing is. Raises OSError.

    `hubbubd` checks a copy beside the file. If something is wrong, it checks the settings alone: only for what is wrong
    with these the hub refuses the file.
    """
    directory = file.parent if file.parent.is_dir() else None
    with tempfile.TemporaryDirectory(prefix=".hubbub-", dir=directory) as candidate_dir:
        candidate = Path(candidate_dir) / file.name
        candidate.touch(mode=0o600)
        candidate.write_text(text, encoding="utf-8", newline="")
        message = _run_check(candidate, environ)
        if message is None:
            return None
        refusal = _run_check(candidate, environ, "settings")
    return Problem(message, refused=False) if refusal is None else Problem(refusal, refused=True)


def _run_check(candidate: Path, environ: Mapping[str, str], *arguments: str) -> str | None:
    """Return what `hubbubd --check-config ARGUMENTS` finds wrong with a file within LIMIT_S; None if nothing."""
    command = [sys.executable, "-m", "hubbubd", "--config", str(candidate), "--check-config", *arguments]
    try:
        process = subprocess.run(  # noqa: S603 - this very Python
            command, env=dict(environ), capture_output=True, text=True, check=False, timeout=LIMIT_S, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return f"its check took more than {LIMIT_S} s"
    if process.returncode != WRONG_CONFIG_STATUS:
        return None
    lines = process.stderr.strip().splitlines() or ["hubbubd says nothing"]
    message = lines[-1].replace(str(candidate), candidate.name)
    return message.removeprefix("hubbubd: ").removeprefix("error: ")
