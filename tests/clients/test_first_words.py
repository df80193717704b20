"""What is said first: nothing twice, nothing that is hidden, and nothing that leads to another hub."""

from pathlib import Path
from typing import Any

import pytest

from hubbub_cli.machine import checks
from hubbub_cli.notices.notify_process import find_notify_file
from hubbub_cli.run.session import Settings

GIVEN = {"address": None, "token": None, "name": None, "as_json": False, "output": None, "wait": False}


def test_a_printed_command_names_the_data_directory_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"data_dir": "hub", "ca": "ca.pem", "cert": None, "key": None}
    settings = Settings.from_params({**GIVEN, **files, "connect_timeout_s": None})
    assert settings.command("down") == f"hubbub --data-dir {tmp_path}/hub --ca {tmp_path}/ca.pem down"


def test_a_file_that_only_the_hub_can_judge_is_left_to_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "hub.toml"
    file.write_text("[hub\n")
    assert find_notify_file([str(file)]) is None
    assert capsys.readouterr().err == ""
    file.write_text("[notify]\nurls = 3\n")
    assert find_notify_file([str(file)]) is None
    assert "nobody is notified" in capsys.readouterr().err


async def test_the_doctor_ends_with_what_is_wrong(typed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda _: None)  # without the hub's own checks, which are a process
    ran = await typed("--data-dir", str(tmp_path / "none"), "doctor")
    verdicts = [line.split()[0] for line in ran.out.splitlines() if not line.startswith(" ")]
    assert ran.status == 1
    assert verdicts == sorted(verdicts, key=["ok", "warn", "fail"].index)
    assert verdicts[-1] == "fail"


async def test_that_no_service_is_installed_is_no_error(
    hub: Any, typed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr("hubbub_local.services.find_service_kind", lambda _: "systemd")
    ran = await typed("service", "status")
    assert (ran.status, ran.err) == (0, "")
    assert "`hubbub service install` makes it" in ran.out
