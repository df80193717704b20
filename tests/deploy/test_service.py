"""The unit of systemd."""

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path

import pytest

from hubbub_local import services
from hubbubd.config.hub import HubSettings
from hubbubd.config.sections.fleet import FleetSettings

from .conftest import DEPLOY, LIMIT_S, installed, ran

UNIT = DEPLOY / "hubbubd.service"
PROGRAM = re.compile(r"(?<==)/\S+/(hubbubd?)(?= |$)", re.MULTILINE)
# In tenths of systemd's own scale, on which 10 is a service without any confinement.
MOST_EXPOSED = "20"


def adapted(directory: Path) -> Path:
    """The unit with the program where it is on this machine."""
    text, count = PROGRAM.subn(lambda found: str(installed(found[1])), UNIT.read_text())
    assert count == 3
    path = directory / UNIT.name
    path.write_text(text)
    return path


def test_systemd_takes_the_unit(tool: Callable[[str], str], tmp_path: Path) -> None:
    assert ran(tool("systemd-analyze"), "verify", adapted(tmp_path)) == ""


@pytest.mark.parametrize("unit", ["of the machine", "of a person"])
def test_a_member_of_a_fleet_has_the_time_that_it_takes_to_end(unit: str, tmp_path: Path) -> None:
    member = services.UserService(words=["hubbubd"], log=tmp_path, member=True)
    text = UNIT.read_text() if unit == "of the machine" else services.render_service_file(member, "systemd").decode()
    (limit_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    hands_on_s = FleetSettings.model_fields["drain_timeout_s"].default
    assert int(limit_s) > hands_on_s + HubSettings.model_fields["shutdown_grace_s"].default


def test_systemd_finds_it_confined(tool: Callable[[str], str], tmp_path: Path) -> None:
    ran(
        tool("systemd-analyze"),
        "security",
        "--offline=true",
        f"--threshold={MOST_EXPOSED}",
        "--no-pager",
        adapted(tmp_path),
    )


def test_what_it_starts_takes_the_settings_that_it_is_given(tmp_path: Path) -> None:
    unit = ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(UNIT)
    program, *options = shlex.split(unit["Service"]["ExecStartPre"])
    config = tmp_path / "hubbub.toml"
    config.write_text((DEPLOY / "hub/hubbub.toml").read_text().replace("/var/lib/hubbub", str(tmp_path)))
    assert Path(program).name == "hubbubd"
    environ = {"HUBBUBD_CONFIG": str(config), "HUBBUBD_DATA_DIR": str(tmp_path)}
    assert "ok    configuration: 1 server " in ran(installed("hubbubd"), *options, env=environ)


def test_systemd_takes_the_unit_of_a_person(tool: Callable[[str], str], tmp_path: Path) -> None:
    """What `hubbub service install` writes, with words that mean something to systemd, as the user manager reads it."""
    odd = tmp_path / 'a b%c$d"e'
    odd.mkdir()
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    env = {**os.environ, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(runtime)}
    text = ran(installed("hubbub"), "--data-dir", odd, "service", "install", "--print", env=env)
    unit = tmp_path / "hubbub.service"
    unit.write_text(text)
    assert f'ExecStart="{installed("hubbubd")}"' in text
    assert ran(tool("systemd-analyze"), "--user", "verify", unit, env=env) == ""


def test_a_service_is_written_and_said_not_to_be_enabled_where_nothing_could_start_it(
    tool: Callable[[str], str], tmp_path: Path
) -> None:
    """No session bus is where this looks for one, as in a container."""
    tool("systemctl")
    home = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "nowhere"), "DBUS_SESSION_BUS_ADDRESS": ""}
    words = [installed("hubbub"), "service", "install"]
    done = subprocess.run(words, env={**os.environ, **home}, capture_output=True, text=True, timeout=LIMIT_S)
    unit = tmp_path / ".config/systemd/user/hubbub.service"
    assert done.returncode == 1
    assert f"{unit} is written, but not enabled" in done.stderr
    assert "`hubbub up -d`" in done.stderr
    assert unit.exists()
    removed = subprocess.run([*words[:2], "uninstall"], env={**os.environ, **home}, timeout=LIMIT_S)
    assert removed.returncode == 0
    assert not unit.exists()
