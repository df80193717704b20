"""The files that make the hub a service of the person who is logged in."""

import plistlib
from configparser import ConfigParser
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hubbub_local import services
from hubbub_local.platform_dirs import Machine
from hubbub_local.services import NoServices, ServiceFailed, UserService

from .launchd_rules import broken_rules

ODD = "a b%c$d\"e\\f'g"
HOME = Path("/people/ada")


def service(*words: str, **environ: str) -> UserService:
    return UserService(words=["/bin/hubbubd", *words], environ=environ, log=HOME / "hub.log", home=HOME)


def machine(platform: str, home: Path = HOME, **environ: str) -> Machine:
    return Machine(platform=platform, home=home, environ=environ)


def unit(made: UserService) -> ConfigParser:
    read = ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read_string(services.render_service_file(made, "systemd").decode())
    return read


def test_each_system_has_the_file_where_it_looks_for_it(tmp_path: Path) -> None:
    unit, agent = ".config/systemd/user/hubbub.service", "Library/LaunchAgents/hubbub.plist"
    assert services.find_service_file(machine("linux"), "systemd") == HOME / unit
    other = machine("linux", XDG_CONFIG_HOME="/other")
    assert services.find_service_file(other, "systemd") == Path("/other/systemd/user/hubbub.service")
    assert services.find_service_file(machine("darwin"), "launchd") == HOME / agent


def test_a_system_without_services_is_an_error_of_its_own(tmp_path: Path) -> None:
    assert services.find_service_kind(machine("darwin")) == "launchd"
    (tmp_path / "systemctl").touch(mode=0o755)
    assert services.find_service_kind(machine("linux", PATH=str(tmp_path))) == "systemd"
    for other in (machine("linux", PATH="/nowhere"), machine("win32"), machine("freebsd14", PATH=str(tmp_path))):
        with pytest.raises(NoServices, match="neither systemd nor launchd"):
            services.find_service_kind(other)


def test_the_unit_starts_the_hub_again_after_a_fault_and_not_for_a_wrong_configuration() -> None:
    made = unit(service("--config", "x.toml", PATH="/bin"))["Service"]
    assert made["ExecStart"] == '"/bin/hubbubd" "--config" "x.toml"'
    assert made["Environment"] == '"PATH=/bin"'
    assert (made["Restart"], made["RestartPreventExitStatus"], made["KillMode"]) == ("on-failure", "2", "mixed")


def test_the_unit_of_a_member_of_a_fleet_tells_the_others_of_its_end() -> None:
    made = UserService(words=["/bin/hubbubd", "--config", "a b.toml"], log=HOME / "hub.log", member=True)
    assert unit(made)["Service"]["ExecStopPost"] == '-"/bin/hubbubd" "--config" "a b.toml" --release'
    assert "ExecStopPost" not in unit(service())["Service"]


def test_the_unit_hides_nothing_that_servers_of_a_person_need() -> None:
    hiding = {"ProtectHome", "PrivateTmp", "ProtectSystem", "DynamicUser", "MemoryDenyWriteExecute", "PrivateNetwork"}
    assert hiding.isdisjoint(unit(service())["Service"])


def test_a_unit_says_that_it_notifies_only_if_the_hub_does() -> None:
    assert unit(service())["Service"]["Type"] == "exec"


def test_words_are_taken_literally_by_systemd() -> None:
    made = unit(service(ODD, TOKEN=ODD))["Service"]
    assert made["ExecStart"] == '"/bin/hubbubd" "a b%%c$$d\\"e\\\\f\'g"'
    assert made["Environment"] == '"TOKEN=a b%%c$d\\"e\\\\f\'g"'


@pytest.mark.parametrize("kind", ["systemd", "launchd"])
@pytest.mark.parametrize("word", ["a\nExecStart=/bin/evil", "a\x00b", "\x1b[31m", "\udcff"])
def test_a_word_that_the_file_of_the_service_cannot_have_is_refused(word: str, kind: services.Kind) -> None:
    for made in (service(word), service(TOKEN=word), UserService(words=["/bin/x"], log=HOME / word)):
        with pytest.raises(
            ServiceFailed, match=f"a file of {kind} cannot have .*: a character of it cannot be printed"
        ):
            services.render_service_file(made, kind)


def test_launchd_is_told_the_same_and_where_the_log_is() -> None:
    made = plistlib.loads(services.render_service_file(service(ODD, TOKEN=ODD), "launchd"))
    assert made["Label"] == services.LABEL
    assert made["ProgramArguments"] == ["/bin/hubbubd", ODD, "--log-file", str(HOME / "hub.log")]
    assert made["EnvironmentVariables"] == {"TOKEN": ODD}
    assert (made["RunAtLoad"], made["KeepAlive"]) == (True, {"SuccessfulExit": False})
    assert (made["WorkingDirectory"], made["StandardErrorPath"]) == (str(HOME), str(HOME / "hub.log"))


def test_both_systems_give_the_hub_the_same_time_to_end() -> None:
    agent = plistlib.loads(services.render_service_file(service(), "launchd"))
    assert f"{agent['ExitTimeOut']}" == unit(service())["Service"]["TimeoutStopSec"]


def test_files_that_the_hub_makes_are_its_persons_alone_and_launchd_does_not_start_it_in_a_loop() -> None:
    agent = plistlib.loads(services.render_service_file(service(), "launchd"))
    assert agent["Umask"] == int(unit(service())["Service"]["UMask"], 8) == 0o077
    assert agent["ThrottleInterval"] == services.RESTART_INTERVAL_S > 10  # which is the system's own


PRINTED = st.text(st.characters(exclude_categories=["C", "Z"]) | st.sampled_from(" &<>\"'~%$äÖß"), max_size=30)
PATHS = PRINTED.map(lambda text: "/" + text.replace("/", "_"))


@given(
    words=st.lists(PRINTED), environ=st.dictionaries(st.from_regex(r"[A-Z_]{1,9}", fullmatch=True), PRINTED), at=PATHS
)
@example(words=["--config", "/people/Jürgen & <Söhne>/a b.toml"], environ={"PATH": "/b & c"}, at="/people/]]>")
def test_launchd_takes_the_file_whatever_the_names_of_a_person_are(
    words: list[str], environ: dict[str, str], at: str
) -> None:
    """By the rules of launchd.plist(5) and plutil(1), and with each word as it was."""
    log = Path(at) / "hub.log"
    made = UserService(words=["/bin/hubbubd", *words], environ=environ, log=log, home=Path(at))
    text = services.render_service_file(made, "launchd")
    assert broken_rules(text, services.find_service_file(machine("darwin"), "launchd").name) == []
    agent = plistlib.loads(text)
    assert agent["ProgramArguments"] == ["/bin/hubbubd", *words, "--log-file", str(log)]
    assert (agent["EnvironmentVariables"], agent["WorkingDirectory"]) == (environ, str(Path(at)))


GOOD = {"Label": "x", "ProgramArguments": ["/bin/x"], "KeepAlive": True}


@pytest.mark.parametrize(
    ("changed", "broken"),
    [
        ({}, []),
        ({"Lable": "x"}, ["Lable: no key of launchd.plist(5)"]),
        ({"Label": "y"}, ["Label: the file would be y.plist"]),
        ({"ProgramArguments": []}, ["ProgramArguments: must be a list of texts, and not empty"]),
        ({"ProgramArguments": ["/bin/x", 1]}, ["ProgramArguments: must be a list of texts, and not empty"]),
        ({"ProgramArguments": ["bin/x"]}, ["ProgramArguments: bin/x is not absolute"]),
        ({"StandardErrorPath": "~/x.log"}, ["StandardErrorPath: ~/x.log is not absolute"]),
        ({"WorkingDirectory": True}, ["WorkingDirectory: must be a text"]),
        ({"RunAtLoad": 1}, ["RunAtLoad: must be true or false"]),
        ({"Umask": True}, ["Umask: must be a whole number, 0 to 511"]),
        ({"Umask": 77777}, ["Umask: must be a whole number, 0 to 511"]),
        ({"ThrottleInterval": 0}, ["ThrottleInterval: must be a whole number, 1 to 3600"]),
        ({"EnvironmentVariables": {"A": 1}}, ["EnvironmentVariables: must be a table of texts"]),
        ({"KeepAlive": {"SuccesfulExit": False}}, ["KeepAlive: must be true or false, or a table of known conditions"]),
        ({"ProcessType": "Fast"}, ["ProcessType: Fast is none of its words"]),
    ],
)
def test_the_rules_find_what_launchd_would_not_take(changed: dict[str, object], broken: list[str]) -> None:
    assert broken_rules(plistlib.dumps({**GOOD, **changed}), "x.plist") == broken


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        (b"{}", "is no property list"),
        (plistlib.dumps([1]), "is no table"),
        (
            plistlib.dumps(GOOD).replace(b"</dict>", b"\t<key>Label</key><string>x</string></dict>"),
            "Label: is there twice",
        ),
        (plistlib.dumps(GOOD, fmt=plistlib.FMT_BINARY), "is no text"),
    ],
)
def test_the_rules_find_what_is_no_property_list(text: bytes, broken: str) -> None:
    assert broken_rules(text, "x.plist") == [broken]


def test_installing_writes_the_file_and_replaces_an_older_one(tmp_path: Path) -> None:
    at = machine("darwin", tmp_path)
    for word in ("old", "new"):
        path = services.write_service_file(at, service(word))
    assert plistlib.loads(path.read_bytes())["ProgramArguments"][1] == "new"
    assert [*path.parent.iterdir()] == [path]


def test_what_is_not_installed_can_neither_be_started_nor_removed(tmp_path: Path) -> None:
    at = machine("darwin", tmp_path)
    for ask in (
        services.start_service,
        services.stop_service,
        services.uninstall_service,
        services.make_status_command,
    ):
        with pytest.raises(ServiceFailed, match="`hubbub service install` makes it"):
            ask(at)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "Library").touch()
    with pytest.raises(ServiceFailed, match=r"hubbub\.plist cannot be written"):
        services.write_service_file(machine("darwin", tmp_path), service())


def test_each_system_shows_status_and_log_by_its_own_programs(tmp_path: Path) -> None:
    at = machine("darwin", tmp_path)
    services.write_service_file(at, service())
    assert services.make_status_command(at)[:2] == ["launchctl", "print"]
    log = tmp_path / "hub.log"
    assert services.make_log_command(at, log, 5, follow=True) == ["tail", "-n", "5", "-F", str(log)]
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "systemctl").touch(mode=0o755)
    at = machine("linux", tmp_path, PATH=str(bin_))
    services.write_service_file(at, service())
    assert services.make_status_command(at)[:2] == ["systemctl", "--user"]
    assert services.make_log_command(at, log, 5, follow=False)[:3] == ["journalctl", "--user-unit", "hubbub.service"]
