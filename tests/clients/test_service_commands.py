"""`hubbub service` on a machine whose `systemctl` is a script: what it says while the hub does not run as wanted."""

import json
import os
from pathlib import Path

import pytest

from hubbub_cli import run_command_line
from hubbub_cli.commands import service

from .test_daemon import held

__all__ = ["held"]

pytestmark = pytest.mark.usefixtures("processes")


class Machine:
    """An empty home with a `systemctl` that notes what it is asked, and says which process the service has."""

    def __init__(self, path: Path) -> None:
        self.unit = path / ".config/systemd/user/hubbub.service"
        self._asked, self._pid = path / "asked", path / "pid"
        self.bin = path / "bin"
        self.bin.mkdir(parents=True)
        self.runs(0)
        script = self.bin / "systemctl"
        script.write_text(
            f'#!/bin/sh\nif [ "$2" = show ]; then read -r pid <{self._pid}; echo "MainPID=$pid"\n'
            f'else echo "$2" >>{self._asked}; fi\n'
        )
        script.chmod(0o755)

    def runs(self, pid: int) -> None:
        """The service has this process; 0 for none."""
        self._pid.write_text(f"{pid}\n")

    @property
    def asked(self) -> list[str]:
        return self._asked.read_text().split() if self._asked.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path / "home")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(made.bin))
    for name in ("HUBBUBD_CONFIG", "HUBBUBD_DATA_DIR", "HUBBUB_ADDRESS", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(service, "START_LIMIT_S", 0)
    return made


def refused(capsys: pytest.CaptureFixture[str], directory: Path, *words: str) -> str:
    """The message of the error."""
    assert run_command_line(["--json", "--data-dir", str(directory), "service", *words]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    error = json.loads(said.err.splitlines()[-1])
    assert error["reason"] == "SERVICE_FAILED"
    return str(error["message"])


def test_a_service_that_has_the_data_directory_is_installed_and_started_again(
    machine: Machine, held: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.runs(os.getpid())
    for words, event in ((["install"], "installed"), (["start"], "started")):
        assert run_command_line(["--json", "--data-dir", str(held), "service", *words]) == 0
        assert json.loads(capsys.readouterr().out)["event"] == event
    assert machine.asked == ["show-environment", "daemon-reload", "enable", "restart", "start"]


@pytest.mark.parametrize(("text", "told"), [("[fleet]\nname = 'a'\n", True), ("[hub]\n", False), ("[", False)])
def test_a_service_of_a_member_of_a_fleet_tells_the_others_of_its_end(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: bool
) -> None:
    config = tmp_path / "hubbub.toml"
    config.write_text(text)
    assert run_command_line(["service", "install", "--print", "--config", str(config)]) == 0
    assert (f'"{config}" --release' in capsys.readouterr().out) is told


def test_a_service_that_does_not_run_once_it_is_started_is_an_error_that_names_its_log(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ("install", "start"):
        message = refused(capsys, tmp_path, words)
        assert "does not run any more" in message
        assert "service logs`" in message


def test_a_service_is_not_started_beside_another_hub_for_its_directory(
    machine: Machine, held: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.unit.parent.mkdir(parents=True)
    machine.unit.touch()
    for words in ("install", "start"):
        assert f"a hub runs for {held}, process {os.getpid()}; end it first: `hubbub" in refused(capsys, held, words)
    assert machine.asked == []
    assert machine.unit.read_text() == ""


def test_what_is_not_installed_is_not_started_whatever_runs(
    machine: Machine, held: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "`hubbub service install` makes it" in refused(capsys, held, "start")


def test_a_service_reads_the_files_of_this_shell_from_wherever_it_is_started(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HUBBUBD_CONFIG", f"a.toml{os.pathsep}b.json")
    monkeypatch.setenv("HUBBUBD_DATA_DIR", "data")
    assert run_command_line(["service", "install", "--print"]) == 0
    unit = capsys.readouterr().out
    assert f'"--config" "{tmp_path}/a.toml" "--config" "{tmp_path}/b.json" "--data-dir" "{tmp_path}/data"' in unit
    assert "HUBBUBD" not in unit


def test_a_program_of_the_system_that_is_not_there_is_an_error_like_any_other(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.unit.parent.mkdir(parents=True)
    machine.unit.touch()
    assert "journalctl cannot be started: No such file" in refused(capsys, tmp_path, "logs")
