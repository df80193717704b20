"""Somebody's first minute, as `make first-contact` goes through it."""

import shutil
import subprocess
from pathlib import Path

from .conftest import ROOT, installed
from .first_contact import STEPS

LIMIT_S = 900


def test_an_empty_home_has_a_hub_that_asks_and_is_answered(tmp_path: Path) -> None:
    for project in (ROOT, ROOT / "clients/library"):
        built = [installed("hatchling"), "build", "--target", "wheel", "--directory", tmp_path]
        subprocess.run(built, cwd=project, check=True, capture_output=True, timeout=LIMIT_S)
    python = shutil.which("python3") or "python3"
    words = [python, ROOT / "tests/deploy/first_contact.py", tmp_path]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()] == [*(step.__name__ for step in STEPS), "in"]
