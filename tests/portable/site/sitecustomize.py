"""Lets each Python process that has this folder in PYTHONPATH play a Mac: see `tests/portable/macos.py`.

A worker of pytest begins as a Linux process; there the plugin plays.
"""

import runpy
import sys
from pathlib import Path

if "import sys;exec(eval(sys.stdin.readline()))" not in sys.orig_argv:
    runpy.run_path(str(Path(__file__).parents[1] / "macos.py"))["play"]()
