"""The daemon ends in one line, whatever went wrong."""

import subprocess
from pathlib import Path

import pytest

from hubbubd.program import app

from .conftest import BIN


@pytest.mark.parametrize(
    ("words", "closed", "status"),
    [("--xyz", "2>&-", 2), ("--check-config", ">&-", 0), ("--check-config", ">/dev/full", 1)],
)
def test_a_daemon_without_its_streams_ends_as_ever(tmp_path: Path, words: str, closed: str, status: int) -> None:
    command = f"{BIN / 'hubbubd'} --data-dir {tmp_path / 'data'} {words} {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    said = done.stderr.decode()
    assert "Traceback" not in said
    assert "fault of its own" not in said
    assert done.returncode == status


def test_a_fault_of_the_daemon_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> int:
        raise LookupError("mine\nand more")

    monkeypatch.delenv(app.DEBUG, raising=False)
    monkeypatch.setattr(app, "_run", fail)
    assert app.run([]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "LookupError: mine and more" in said
    monkeypatch.setenv(app.DEBUG, "1")
    with pytest.raises(LookupError):
        app.run([])
