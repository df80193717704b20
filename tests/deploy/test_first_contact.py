"""Somebody's first minute, as `make first-contact` goes through it."""

import shutil
import subprocess

from .conftest import ROOT
from .first_contact import STEPS

LIMIT_S = 900


def test_an_empty_home_has_a_hub_that_asks_and_is_answered() -> None:
    words = [shutil.which("python3") or "python3", ROOT / "tests/deploy/first_contact.py"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()] == [*(step.__name__ for step in STEPS), "in"]
