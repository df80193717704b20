"""What is made once for a run of the tests, whichever worker wants it first."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def run_directory(factory: pytest.TempPathFactory) -> Path:
    """The directory that all workers of a run share."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The directory of this name, filled by the first worker that wants it; the others wait. Nobody changes it then."""
    directory = run_directory(factory) / name
    made = directory.with_suffix(".made")
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(directory, ignore_errors=True)  # of one that failed
            directory.mkdir()
            make(directory)
            made.touch()
    return directory
