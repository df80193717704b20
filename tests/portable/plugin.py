"""The tests of processes on a system that is not Linux: `pytest -p tests.portable.plugin FILE...` (or `make portable`).

A Mac is played (`macos.py`) in the process of the tests and in all that they start. What is shown is that the product's
portable form keeps its promises; that macOS has what that form asks for, its runs in CI show.
"""

import os
from pathlib import Path

from .. import forks  # before a Mac is played: it keeps what of Linux the tests need themselves
from . import macos

SITE = str(Path(__file__).parent / "site")

macos.play()
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (SITE, os.environ.get("PYTHONPATH", ""))))
# The fork server is of Linux: all processes are started as a user starts them.
forks.Real.wanted = property(lambda _: True, lambda _, __: None)  # type: ignore[assignment]
