"""The log in a file of bounded size."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hubbubd.process.log_file import MAX_FILES, RotatedLog

STDERR_GOES_THERE = """
import os, sys
from pathlib import Path
from hubbubd.process.log_file import RotatedLog
log = RotatedLog(Path(sys.argv[1]), 100)
log.redirect_stderr()
os.write(2, b"before\\n")
for number in range(3):
    log.write("x" * 60 + "\\n")
os.write(2, b"after\\n")
"""


def test_it_never_takes_more_than_its_share_and_keeps_the_newest(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "made/hub.log", 1000)
    for number in range(500):
        log.write(f"line {number:06}\n")
    kept = sorted((tmp_path / "made").iterdir())
    assert len(kept) == 1 + MAX_FILES
    assert all(each.stat().st_size <= 1000 for each in kept)
    assert (tmp_path / "made/hub.log").read_text().endswith("line 000499\n")
    log.close()


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "hub.log", 20)
    log.write("a line of some length\n")
    log.write("a line of some length\n")
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}
    log.close()


def test_it_goes_on_where_the_last_hub_ended(tmp_path: Path) -> None:
    for word in ("first", "second"):
        log = RotatedLog(tmp_path / "hub.log")
        log.write(f"{word}\n")
        log.close()
    assert (tmp_path / "hub.log").read_text() == "first\nsecond\n"


def test_a_line_that_cannot_be_written_is_lost_and_nothing_else() -> None:
    log = RotatedLog(Path("/dev/full"))
    log.write("a line\n")
    log.close()


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        RotatedLog(tmp_path / "file" / "hub.log")


@pytest.mark.usefixtures("processes")
def test_what_is_written_to_stderr_is_kept_in_it_over_its_rotations(tmp_path: Path) -> None:
    path = tmp_path / "hub.log"
    done = subprocess.run(
        [sys.executable, "-c", STDERR_GOES_THERE, path], capture_output=True, check=True, timeout=60, env=os.environ
    )
    assert done.stderr == b""
    assert path.read_text().endswith("after\n")
    assert any("before\n" in each.read_text() for each in tmp_path.iterdir())
