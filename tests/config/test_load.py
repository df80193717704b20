"""The layers of the hub's settings, and what is said when one of them is wrong."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from hubbub_shared.platform.directories import default_config_file
from hubbubd.config import HubSettings, load_settings
from hubbubd.errors import ConfigError


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@pytest.fixture
def hub_file(tmp_path: Path) -> str:
    return write(tmp_path / "hub.toml", '[hub]\nlisten = "127.0.0.1:1"\nlog_level = "debug"\nmax_servers = 7\n')


def test_defaults_follow_the_base_directory_specification(tmp_path: Path) -> None:
    assert load_settings([], {"XDG_DATA_HOME": str(tmp_path)}).hub.data_dir == tmp_path / "hubbub"
    for unusable in ({}, {"XDG_DATA_HOME": ""}, {"XDG_DATA_HOME": "relative"}):
        assert load_settings([], unusable).hub.data_dir == Path.home() / ".local/share/hubbub"


def test_the_command_line_wins_over_the_environment_and_that_over_files(hub_file: str) -> None:
    environ = {"HUBBUBD_LISTEN": "127.0.0.1:2", "HUBBUBD_LOG_LEVEL": "error"}
    hub = load_settings(["--config", hub_file, "--listen", "127.0.0.1:3"], environ).hub
    assert (hub.listen, hub.log_level, hub.max_servers) == ("127.0.0.1:3", "error", 7)


def test_a_later_file_wins_for_the_hub_and_adds_servers(tmp_path: Path, hub_file: str) -> None:
    other = write(tmp_path / "b.toml", '[hub]\nmax_servers = 9\n[servers.b]\ncommand = "b"\n')
    settings = load_settings(["--config", hub_file, "--config", other], {})
    assert (settings.hub.max_servers, settings.hub.log_level) == (9, "debug")
    assert [server.name for server in settings.servers] == ["b"]


def test_files_may_be_named_in_the_environment_and_options_replace_them(tmp_path: Path, hub_file: str) -> None:
    other = write(tmp_path / "b.json", '{"hub": {"max_servers": 9}}')
    assert load_settings([], {"HUBBUBD_CONFIG": f"{hub_file}:{other}"}).hub.max_servers == 9
    assert load_settings(["--config", hub_file], {"HUBBUBD_CONFIG": other}).hub.max_servers == 7


def test_lists_in_the_environment_are_json() -> None:
    hub = load_settings([], {"HUBBUBD_ALLOW_VARIABLES": '["A", "B"]', "HUBBUBD_SOMETHING_ELSE": "ignored"}).hub
    assert hub.allow_variables == ("A", "B")


def test_a_settings_object_made_by_hand_does_not_look_at_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HUBBUBD_LISTEN", "127.0.0.1:9")
    assert HubSettings(data_dir=tmp_path).listen == "127.0.0.1:7878"


def test_a_home_directory_is_expanded() -> None:
    assert load_settings(["--data-dir", "~/x"], {}).hub.data_dir == Path.home() / "x"


@pytest.mark.parametrize(
    "listen", ["127.0.0.1:0", "127.9.9.9:65535", "localhost:80", "[::1]:0", "unix:/run/x.sock", "unix:x.sock"]
)
def test_loopback_and_unix_sockets_can_be_listened_on(listen: str) -> None:
    assert load_settings(["--listen", listen], {}).hub.listen == listen


@pytest.mark.parametrize(
    ("listen", "problem"),
    [
        ("0.0.0.0:1", "TLS"),
        ("[::]:1", "TLS"),
        ("192.168.0.1:1", "TLS"),
        ("example.com:1", "not an address"),
        ("[127.0.0.1:1", "not an address"),
        ("::1:1", "HOST:PORT"),
        (":1", "HOST:PORT"),
        ("127.0.0.1", "HOST:PORT"),
        ("", "HOST:PORT"),
        ("127.0.0.1:", "not a port"),
        ("127.0.0.1:x", "not a port"),
        ("127.0.0.1:-1", "not a port"),
        ("127.0.0.1:65536", "not a port"),
        ("127.0.0.1:\N{ARABIC-INDIC DIGIT ONE}", "not a port"),
        ("unix:", "path"),
        ("unix:" + "x" * 108, "107 bytes"),
    ],
)
def test_anything_else_is_refused_as_an_address(listen: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        load_settings(["--listen", listen], {})
    assert caught.value.key == "--listen"


@pytest.mark.parametrize(
    ("argv", "environ", "key", "problem"),
    [
        (["--listne", "x"], {}, "usage", "unrecognized arguments: --listne x"),
        (["--list", "127.0.0.1:1"], {}, "usage", "unrecognized arguments"),
        (["--config"], {}, "usage", "expected one argument"),
        (["file.toml"], {}, "usage", "unrecognized arguments: file.toml"),
        ([], {"HUBBUBD_MAX_SERVERS": "0"}, "HUBBUBD_MAX_SERVERS", "greater than or equal to 1"),
        ([], {"HUBBUBD_CALL_HISTORY_AGE_S": "nan"}, "HUBBUBD_CALL_HISTORY_AGE_S", "greater than 0|finite"),
        ([], {"HUBBUBD_LOG_LEVEL": "loud"}, "HUBBUBD_LOG_LEVEL", "'debug'"),
        ([], {"HUBBUBD_ALLOW_COMMANDS": "[npx"}, "HUBBUBD_ALLOW_COMMANDS", "not valid JSON"),
        ([], {"HUBBUBD_ALLOW_COMMANDS": "[1]"}, "HUBBUBD_ALLOW_COMMANDS", "a command, or a table"),
        (["--config", "missing.toml"], {}, "missing.toml", "No such file"),
    ],
)
def test_a_wrong_setting_is_named_with_its_origin_in_one_line(
    argv: list[str], environ: dict[str, str], key: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        load_settings(argv, environ)
    assert caught.value.key == key
    assert "\n" not in str(caught.value)


def test_a_wrong_setting_is_blamed_on_the_last_file_that_has_it(tmp_path: Path, hub_file: str) -> None:
    wrong = write(tmp_path / "wrong.toml", '[hub]\nlog_level = "loud"\n')
    with pytest.raises(ConfigError) as caught:
        load_settings(["--config", hub_file, "--config", wrong], {})
    assert caught.value.key == f"{wrong}: hub.log_level"


def test_one_name_in_two_files_is_an_error_that_names_both(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{name}.toml", '[servers.same]\ncommand = "x"\n') for name in ("one", "two")]
    with pytest.raises(ConfigError) as caught:
        load_settings(["--config", files[0], "--config", files[1]], {})
    assert str(caught.value) == f"{files[1]}: servers.same: is also in {files[0]}"


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("${TOKEN}", "variable TOKEN is not set"),
        ("${file:/nowhere/token}", "cannot be read"),
    ],
)
def test_a_reference_that_leads_nowhere_ends_only_a_check_of_the_configuration(
    reference: str, problem: str, tmp_path: Path
) -> None:
    """One server that lacks something must not keep the others from their work."""
    file = write(tmp_path / "a.toml", f'[servers.a]\nurl = "https://x"\nheaders = {{ A = "Bearer {reference}" }}\n')
    settings = load_settings(["--config", file], {})
    assert settings.servers[0].headers == {"A": SecretStr(f"Bearer {reference}")}
    assert settings.origins == {"a": Path(file)}
    with pytest.raises(ConfigError, match=problem) as caught:
        load_settings(["--config", file, "--check-config"], {})
    assert caught.value.key == f"{file}: servers.a.headers.A"


def test_a_reference_that_nothing_could_mend_ends_the_start(tmp_path: Path) -> None:
    file = write(tmp_path / "a.toml", '[servers.a]\ncommand = "x"\nargs = ["${input:token}"]\n')
    with pytest.raises(ConfigError, match="is none of") as caught:
        load_settings(["--config", file], {})
    assert caught.value.key == f"{file}: servers.a.args.0"


@pytest.mark.parametrize(
    ("platform", "environ", "file"),
    [
        ("linux", {}, "/people/ada/.config/hubbub/hubbub.toml"),
        ("linux", {"XDG_CONFIG_HOME": "/etc/ada"}, "/etc/ada/hubbub/hubbub.toml"),
        ("linux", {"XDG_CONFIG_HOME": "relative"}, "/people/ada/.config/hubbub/hubbub.toml"),
        ("linux", {"XDG_CONFIG_HOME": ""}, "/people/ada/.config/hubbub/hubbub.toml"),
        ("freebsd14", {}, "/people/ada/.config/hubbub/hubbub.toml"),
        ("darwin", {"XDG_CONFIG_HOME": "/x"}, "/people/ada/Library/Application Support/hubbub/hubbub.toml"),
        ("win32", {}, "/people/ada/AppData/Roaming/hubbub/hubbub.toml"),
        ("win32", {"APPDATA": "/data"}, "/data/hubbub/hubbub.toml"),
    ],
)
def test_the_default_file_is_where_the_platform_has_it(platform: str, environ: dict[str, str], file: str) -> None:
    home = Path("/people/ada")
    assert default_config_file(platform, home, environ) == Path(file)


def test_the_default_file_is_read_when_no_file_is_named(tmp_path: Path, hub_file: str) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    default = tmp_path / "hubbub/hubbub.toml"
    default.parent.mkdir()
    write(default, "[hub]\nmax_servers = 3\n")
    settings = load_settings([], environ)
    assert (settings.hub.max_servers, settings.files) == (3, (default,))
    for argv, more in ((["--config", hub_file], {}), ([], {"HUBBUBD_CONFIG": hub_file})):
        other = load_settings(argv, environ | more)
        assert (other.hub.max_servers, other.files) == (7, (Path(hub_file),))


def test_a_default_file_that_is_not_there_is_known_so_that_it_can_be_watched(tmp_path: Path) -> None:
    settings = load_settings([], {"XDG_CONFIG_HOME": str(tmp_path)})
    assert (settings.files, settings.servers) == ((tmp_path / "hubbub/hubbub.toml",), ())


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_a_default_file_that_is_no_file_is_an_error(kind: str, tmp_path: Path) -> None:
    default = tmp_path / "hubbub/hubbub.toml"
    if kind == "directory":
        default.mkdir(parents=True)
    else:
        default.parent.mkdir()
        default.symlink_to("nowhere")
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        load_settings([], {"XDG_CONFIG_HOME": str(tmp_path)})
    assert caught.value.key == str(default)


def test_a_table_for_notifications_is_left_to_the_command_that_reads_it(tmp_path: Path) -> None:
    file = write(tmp_path / "a.toml", '[notify]\nurls = ["json://localhost"]\n[servers.a]\ncommand = "x"\n')
    assert [server.name for server in load_settings(["--config", file], {}).servers] == ["a"]
    wrong = write(tmp_path / "b.toml", "notify = true\n")
    with pytest.raises(ConfigError, match="must be a table"):
        load_settings(["--config", wrong], {})


def test_the_log_can_go_to_a_file(tmp_path: Path) -> None:
    assert load_settings([], {"HUBBUBD_LOG_FILE": "~/hub.log"}).hub.log_file == Path.home() / "hub.log"
    assert load_settings(["--log-file", "x.log"], {"HUBBUBD_LOG_FILE": "y.log"}).hub.log_file == Path("x.log")


def test_checking_the_configuration_is_asked_for_by_an_option() -> None:
    assert load_settings(["--check-config"], {}).check_config
    assert not load_settings([], {}).check_config


def test_a_check_of_the_settings_alone_does_not_look_where_references_lead(tmp_path: Path) -> None:
    file = write(tmp_path / "a.toml", '[servers.a]\ncommand = "x"\nenv = { A = "${NOWHERE}" }\n')
    with pytest.raises(ConfigError, match="NOWHERE is not set"):
        load_settings(["--config", file, "--check-config"], {})
    assert load_settings(["--config", file, "--check-config", "settings"], {}).check_config == "settings"
    write(tmp_path / "a.toml", '[servers.a]\ncommand = "${x y}"\n')
    with pytest.raises(ConfigError, match=r"servers\.a\.command"):
        load_settings(["--config", file, "--check-config", "settings"], {})


def test_version_and_help_end_the_program_well(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--version", "--help"):
        with pytest.raises(SystemExit) as caught:
            load_settings([option], {})
        assert caught.value.code == 0
        assert "hubbubd" in capsys.readouterr().out
