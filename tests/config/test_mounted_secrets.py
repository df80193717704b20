"""What a container mounts: advice about files that others may read fits who owns them."""

import os
from pathlib import Path

import pytest

from hubbubd.config.servers import references
from hubbubd.process import files


def test_one_s_own_file_is_closed_by_chmod(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("s")
    assert files.describe_permission_fix(path, path.stat()) == f"`chmod 600 {path}`"


def test_nobody_is_advised_to_lock_the_hub_out_of_a_file_of_another_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, said = tmp_path / "secret", list[str]()
    path.write_text("s")
    path.chmod(0o444)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert references._read_reference_file(str(path), "servers.one.env.TOKEN", said.append) == "s"
    (warning,) = said
    assert "mount it so" in warning
    assert not warning.endswith(f"`chmod 600 {path}`")
