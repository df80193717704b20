"""Tries a configuration before it is used: `hubbubd --check-config` on a file beside the real one."""

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WRONG: Final = 2
"""What `hubbubd` exits with for a wrong configuration; it warns of anything else."""

LIMIT_S: Final = 120


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a configuration, as the hub says it."""

    says: str
    refused: bool
    """Whether the hub does not take it. Else a server refers to what is not there, for this program at least."""


def problem(text: str, file: Path, environ: Mapping[str, str]) -> Problem | None:
    """Return what is wrong with a text that is to be the content of a file; None if nothing is. Raises OSError."""
    directory = file.parent if file.parent.is_dir() else None
    with tempfile.TemporaryDirectory(prefix=".hubbub-", dir=directory) as beside:
        candidate = Path(beside) / file.name
        candidate.touch(mode=0o600)
        candidate.write_text(text, encoding="utf-8", newline="")
        said = _said(candidate, environ)
        if said is None:
            return None
        refused = _said(candidate, environ, "settings")
    return Problem(said, refused=False) if refused is None else Problem(refused, refused=True)


def _said(candidate: Path, environ: Mapping[str, str], *words: str) -> str | None:
    command = [sys.executable, "-m", "hubbubd", "--config", str(candidate), "--check-config", *words]
    try:
        done = subprocess.run(  # noqa: S603 - this very Python
            command, env=dict(environ), capture_output=True, text=True, check=False, timeout=LIMIT_S, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return f"its check took more than {LIMIT_S} s"
    if done.returncode != WRONG:
        return None
    lines = done.stderr.strip().splitlines() or ["hubbubd says nothing"]
    said = lines[-1].replace(str(candidate), candidate.name)
    return said.removeprefix("hubbubd: ").removeprefix("error: ")
