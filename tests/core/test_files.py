"""Files that are written whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from hubbubd.process import files


def test_a_file_and_its_name_are_on_the_disk_when_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        synced.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")

    monkeypatch.setattr(os, "fsync", sync)
    files.write_atomically(tmp_path / "tokens.json", b"{}")
    assert synced == ["file", "directory"]
    assert (tmp_path / "tokens.json").read_bytes() == b"{}"
