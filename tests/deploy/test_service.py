"""The unit of systemd."""

import re
import shlex
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path

from .conftest import DEPLOY, installed, ran

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
