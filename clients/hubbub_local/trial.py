"""Tries a configuration before it is used: `hubbubd --check-config` on a file beside the real one."""

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

WRONG: Final = 2
"""What `hubbubd` exits with for a wrong configuration; it warns of anything else."""

LIMIT_S: Final = 120


def problem(text: str, file: Path, environ: Mapping[str, str]) -> str | None:
    """Return what is wrong with a text that is to be the content of a file, as the hub says it; None if nothing is.

    Raises OSError.
    """
    directory = file.parent if file.parent.is_dir() else None
    with tempfile.TemporaryDirectory(prefix=".hubbub-", dir=directory) as beside:
        candidate = Path(beside) / file.name
        candidate.touch(mode=0o600)
        candidate.write_text(text, encoding="utf-8", newline="")
        command = [sys.executable, "-m", "hubbubd", "--config", str(candidate), "--check-config"]
        done = subprocess.run(  # noqa: S603 - this very Python
            command, env=dict(environ), capture_output=True, text=True, check=False, timeout=LIMIT_S, errors="replace"
        )
    if done.returncode != WRONG:
        return None
    lines = done.stderr.strip().splitlines() or ["hubbubd says nothing"]
    said = lines[-1].replace(str(candidate), file.name)
    return said.removeprefix("hubbubd: ").removeprefix("error: ")
