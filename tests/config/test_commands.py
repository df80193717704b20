"""What `allow_commands` allows: pure rules, and where a command is found."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hubbubd.config import ServerConfig
from hubbubd.config.policy.commands import AllowedCommand, CommandRules
from hubbubd.errors import PermissionDenied

PYTHON = "/usr/bin/python3"
SHELLS = ["; id", "&& id", "| id", "$(id)", "`id`", "\n id", "> /etc/passwd", "x' 'y"]


def admitted(rule: dict[str, Any] | str, **spec: Any) -> str | None:
    """The path that is started, or None."""
    allowed = AllowedCommand.model_validate(rule)
    try:
        return CommandRules([allowed], "").find_allowed_program(
            ServerConfig(**{"name": "x", "command": PYTHON, **spec})
        )
    except PermissionDenied as denied:
        return {"COMMAND_NOT_ALLOWED": None}[denied.reason]


@pytest.mark.parametrize(
    ("patterns", "args", "allowed"),
    [
        ([], [], True),
        ([], ["-c", "print(1)"], False),
        (["**"], ["-c", "print(1)"], True),
        (["-m", "server"], ["-m", "server"], True),
        (["-m", "server"], ["-m", "server", "--more"], False),
        (["-m", "server"], ["-m"], False),
        (["-m", "server", "**"], ["-m", "server"], True),
        (["-m", "server", "**"], ["-m", "server", "-v", "x"], True),
        (["-m", "server", "**"], ["-m", "other"], False),
        (["*"], ["tool.py"], True),
        (["*"], ["-cimport os"], False),
        (["*"], ["--eval=1"], False),
        (["-*"], ["-v"], True),
        (["/srv/*.py"], ["/srv/a.py"], True),
        (["/srv/*.py"], ["/srv/../tmp/a.py"], False),
        (["/srv/*"], ["/srv/.."], False),
        (["/srv/../a.py"], ["/srv/../a.py"], True),
        (["--root=*"], ["--root=.."], False),
        (["--root=*"], ["--root=../x"], False),
        (["*"], ["a:../b"], False),
        (["*"], ["../b"], False),
        (["*"], ["v1../b..c/..d"], True),
        (["Tool"], ["tool"], False),
        (["-y", "@scope/server@1.*"], ["-y", "@scope/server@1.2"], True),
        (["-y", "@scope/server@1.*"], ["-y", "evil"], False),
    ],
)
def test_arguments_are_allowed_by_position(patterns: list[str], args: list[str], allowed: bool) -> None:
    assert (admitted({"command": PYTHON, "args": patterns}, args=args) == PYTHON) is allowed


@pytest.mark.parametrize("trick", SHELLS)
def test_a_plain_command_takes_no_arguments_and_no_shell_syntax(trick: str) -> None:
    assert admitted(PYTHON) == PYTHON
    assert admitted(PYTHON, args=(trick,)) is None
    assert admitted(PYTHON, command=PYTHON + trick) is None


@pytest.mark.parametrize(
    "name",
    ["", "..", "../x", "a/b", ".hidden", "a\0b", "a\nb", "a b", "\u0430dmin", "a\u202eb", "\uff41", "a" * 65, "%2e%2e"],
)
def test_a_name_that_could_be_a_path_or_look_like_another_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        ServerConfig(name=name, command=PYTHON)


FOREIGN = (
    *("SSLKEYLOGFILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GRPC_CA_FILE"),
    *("HOSTALIASES", "RES_OPTIONS", "LOCALDOMAIN", "GETCONF_DIR", "TZDIR", "TERMINFO", "GCONV_PATH", "KRB5_CONFIG"),
    *("LUA_INIT", "LUA_PATH", "R_PROFILE", "R_PROFILE_USER", "JULIA_LOAD_PATH", "ERL_FLAGS", "ERL_LIBS", "GOFLAGS"),
    *("ELECTRON_RUN_AS_NODE", "AWS_CONFIG_FILE", "KUBECONFIG", "PGSERVICEFILE", "PGPASSFILE", "PERL5LIB", "PERLLIB"),
    *("RUBYOPT", "RUBYLIB", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "GIT_CONFIG_COUNT", "GIT_PAGER"),
    *("DOTNET_STARTUP_HOOKS", "MAVEN_OPTS", "LD_AUDIT", "GLIBC_TUNABLES", "ZDOTDIR", "BASH_FUNC_x%%", "DOCKER_HOST"),
    *("NETRC", "GNUPGHOME", "sslkeylogfile", "GOOGLE_APPLICATION_CREDENTIALS", "PHPRC", "TCLLIBPATH", "DBUS_SESSION"),
)
"""Variables by which programs load, trust or write what they should not, of systems, languages and libraries."""


@pytest.mark.parametrize(
    ("patterns", "name", "allowed"),
    [
        ([], "TOKEN", False),
        (["TOKEN"], "TOKEN", True),
        (["APP_*"], "APP_KEY", True),
        (["APP_*"], "TOKEN", False),
        (["*"], "TOKEN", True),
        *((["*"], name, False) for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "PATH")),
        *((["*"], name, False) for name in ("NODE_OPTIONS", "npm_config_registry", "https_proxy", "BASH_ENV", "HOME")),
        *((["*"], name, False) for name in ("HUBBUB_TOKEN", "HUBBUBD_ALLOW_COMMANDS", "GIT_SSH_COMMAND", "PERL5OPT")),
        *((["*"], name, False) for name in FOREIGN),
        *((["*"], name, True) for name in ("GREETING", "TICKETS_URL", "LC_ALL", "LANG", "DEBUG", "API_KEY", "TZ")),
        (["NODE_*"], "NODE_OPTIONS", False),
        (["NODE_OPTIONS"], "NODE_OPTIONS", True),
        (["PATH", "*"], "PATH", True),
    ],
)
def test_variables_are_allowed_by_name_and_powerful_ones_only_literally(
    patterns: list[str], name: str, allowed: bool
) -> None:
    assert (admitted({"command": PYTHON, "env": patterns}, env={name: "value"}) == PYTHON) is allowed


def test_a_directory_is_allowed_when_it_is_listed() -> None:
    rule = {"command": PYTHON, "cwd": ["/srv"]}
    assert admitted(rule, cwd="/srv") == PYTHON
    for cwd in ("/", "/srv/", "/srv/../tmp", "srv", "."):
        assert admitted(rule, cwd=cwd) is None
    assert admitted(PYTHON, cwd="/srv") is None


@pytest.mark.parametrize(
    "command",
    ["python3", "./python3", "../usr/bin/python3", "/usr/bin/../bin/python3", "/usr//bin/python3", "/USR/BIN/PYTHON3",
     "/usr/bin/python3 ", "/usr/bin/python3\0", "/bin/sh", "\uff50ython3", "/usr/bin/pyth\u043en3"],
)  # fmt: skip
def test_another_spelling_of_an_allowed_path_is_another_command(command: str) -> None:
    assert admitted({"command": PYTHON, "args": ["**"]}, command=command) is None


def test_of_several_entries_for_a_command_one_has_to_fit_whole() -> None:
    rules = [
        AllowedCommand(command=PYTHON, args=("-m", "one"), env=("A",)),
        AllowedCommand(command=PYTHON, args=("-m", "two")),
    ]
    commands = CommandRules(rules, "")
    assert commands.find_allowed_program(ServerConfig(name="x", command=PYTHON, args=("-m", "two"))) == PYTHON
    with pytest.raises(PermissionDenied):
        commands.find_allowed_program(
            ServerConfig.model_validate({"name": "x", "command": PYTHON, "args": ["-m", "two"], "env": {"A": ""}})
        )


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_name_is_resolved_once_whatever_comes_first_on_path_later(tmp_path: Path) -> None:
    good = executable(tmp_path / "good" / "tool")
    commands = CommandRules([AllowedCommand(command="tool")], f"{tmp_path / 'evil'}:{good.parent}")
    executable(tmp_path / "evil" / "tool")
    for spelling in ("tool", str(good)):
        assert commands.find_allowed_program(ServerConfig(name="x", command=spelling)) == str(good)
    with pytest.raises(PermissionDenied):
        commands.find_allowed_program(ServerConfig(name="x", command=str(tmp_path / "evil" / "tool")))


def test_relative_directories_of_path_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "tool")
    monkeypatch.chdir(tmp_path)
    commands = CommandRules([AllowedCommand(command="tool")], ":.:bin")
    assert commands.missing_commands == ["tool"]
    with pytest.raises(PermissionDenied, match="not found on PATH"):
        commands.find_allowed_program(ServerConfig(name="x", command="tool"))


def test_a_link_that_leads_elsewhere_since_the_start_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "tool"
    link.symlink_to(executable(tmp_path / "good"))
    commands = CommandRules([AllowedCommand(command=str(link))], "")
    config = ServerConfig(name="x", command=str(link))
    assert commands.find_allowed_program(config) == str(link)
    link.unlink()
    link.symlink_to(executable(tmp_path / "evil"))
    with pytest.raises(PermissionDenied, match="not the file that it was"):
        commands.find_allowed_program(config)


def test_what_is_there_is_not_reported_missing() -> None:
    rules = [AllowedCommand(command=command) for command in (sys.executable, "/no/such/command", "sh")]
    assert CommandRules(rules, os.defpath).missing_commands == ["/no/such/command"]


@pytest.mark.parametrize(
    "entry",
    ["", "bin/tool", "./tool", {"args": ["x"]}, {"command": "x", "args": ["**", "y"]}, {"command": "x", "arg": []}, 1],
)
def test_an_entry_that_means_nothing_is_an_error(entry: object) -> None:
    with pytest.raises(ValidationError):
        AllowedCommand.model_validate(entry)
