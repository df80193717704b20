"""A person's first minutes: `hubbub init` and `hubbub config`, in a home with the files of all hosts."""

import json
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from .. import forks
from ..clients.host_homes import FILES, SECRET, planted
from .conftest import BIN, LIMIT_S, Ran, environment, running
from .terminals import on_a_terminal

KEYRING = '''
import json, pathlib
from keyring.backend import KeyringBackend

FILE = pathlib.Path(__file__).with_name("kept.json")

class Keys(KeyringBackend):
    """Keeps passwords in a file, for a test."""
    priority = 9

    def _all(self):
        return json.loads(FILE.read_text()) if FILE.exists() else {}

    def get_password(self, service, username):
        return self._all().get(f"{service}/{username}")

    def set_password(self, service, username, password):
        FILE.write_text(json.dumps({**self._all(), f"{service}/{username}": password}))
'''


@dataclass
class Home:
    """A person's home, and what they run in it."""

    path: Path
    folder: Path
    more: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def file(self) -> Path:
        """The configuration file."""
        return self.path / ".config" / "hubbub" / "hubbub.toml"

    @property
    def configuration(self) -> Any:
        return tomllib.loads(self.file.read_text())

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in environment().items() if not name.startswith("XDG_")}
        none = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
        return {**kept, **none, "HOME": str(self.path), "PORT": "80", "DOCS_HOME": "/d", **self.more}

    async def hubbub(self, *words: str, **environ: str) -> Ran:
        """Runs `hubbub` to its end, without a terminal."""
        with anyio.fail_after(LIMIT_S):
            done = await forks.run([str(BIN / "hubbub"), *words], env={**self.environ, **environ}, cwd=self.folder)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def keyring(self) -> dict[str, str]:
        """What is in the keyring."""
        return json.loads((self.path / "keys" / "kept.json").read_text())

    def with_keyring(self) -> None:
        """Gives the home a keyring."""
        (self.path / "keys").mkdir()
        (self.path / "keys" / "test_keys.py").write_text(KEYRING)
        self.more |= {"PYTHONPATH": str(self.path / "keys"), "PYTHON_KEYRING_BACKEND": "test_keys.Keys"}

    def hosts(self) -> Mapping[str, bytes]:
        """The files of the hosts."""
        return {name: (self.path / name).read_bytes() for name in FILES}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, planted(tmp_path))


async def test_without_a_terminal_all_is_shown_and_nothing_done_until_told_to(home: Home) -> None:
    ran = await home.hubbub("init")
    assert ran.status == 2
    assert "Claude Code, Claude Desktop" in ran.out
    assert "./server ${ROOT:-.}" in ran.out
    assert "this folder brings it: look at what it starts" in ran.out
    assert "begins like a token of GitHub" in ran.out
    assert "switched off there" in ran.out
    assert "`hubbub init --yes` takes all that are new" in ran.err
    assert not home.file.exists()


async def test_with_yes_the_hub_gets_all_that_needs_no_person_and_a_second_run_changes_nothing(home: Home) -> None:
    before = home.hosts()
    ran = await home.hubbub("init", "--yes")
    assert ran.status == 0, ran.err
    taken = home.configuration["servers"]
    assert taken.keys() >= {"files", "files-cursor", "github", "tickets", "shop", "zed-new", "docs", "here", "figma"}
    assert taken.keys().isdisjoint({"hubbub", "off", "open", "developer", "search", "linear", "memory", "remote"})
    assert home.file.stat().st_mode & 0o777 == 0o600
    assert "search: it needs key" in ran.err
    assert "github: env GITHUB_TOKEN (begins like a token of GitHub)" in ran.err
    assert SECRET not in ran.out + ran.err
    assert "nothing was changed in the files of the hosts" in ran.err
    assert "hubbub up -d" in ran.err
    assert "hubbub mcp install claude-desktop" in ran.err
    assert home.hosts() == before
    content = home.file.read_bytes()
    assert not any("confirm" in server for server in taken.values())
    again = await home.hubbub("init", "--yes")
    assert (again.status, home.file.read_bytes()) == (0, content)
    assert [each.name for each in home.file.parent.iterdir()] == ["hubbub.toml"]


async def test_with_confirm_people_approve_what_the_servers_write(home: Home) -> None:
    assert (await home.hubbub("init", "--yes", "--confirm")).status == 0
    assert {server["confirm"] for server in home.configuration["servers"].values()} == {"writes"}


async def test_json_has_a_record_for_each_server_and_one_of_what_was_done(home: Home) -> None:
    (home.path / ".cursor/mcp.json").write_text("{ broken")
    ran = await home.hubbub("--json", "init", "--yes")
    *records, done = ran.lines
    by_name = {each["name"]: each for each in records if "name" in each}
    assert by_name["github"]["secrets"] == ["env GITHUB_TOKEN"]
    assert (by_name["search"]["asks"], by_name["off"]["state"]) == (["region", "key"], "disabled")
    assert [each["problem"][:6] for each in records if "problem" in each] == ["line 1"]
    assert done["file"] == str(home.file)
    assert "search" in done["left"]
    assert "github" in done["taken"]


async def test_a_person_chooses_answers_once_and_has_secrets_in_the_keyring(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.with_keyring()
    listed = [json.loads(line) for line in (await home.hubbub("--json", "init")).out.splitlines()]
    number = {each["name"]: str(at) for at, each in enumerate(listed, 1) if "name" in each}
    command = [str(BIN / "hubbub"), "init"]
    monkeypatch.chdir(home.folder)
    async with on_a_terminal(command, home.environ) as person:
        await person.answers("Which?", "99")
        for wrong in ("99", "3-1"):  # one wrong number, and none of the others is taken either
            await person.answers("type numbers", f"{number['github']} {wrong}")
        await person.answers("type numbers", f"{number['github']}, {number['search']} {number['notes']}")
        await person.answers("in your system's keyring instead of the file?", "")
        await person.answers("Shall somebody approve each call", "no")
        await person.answers("search asks for Region [eu/us] (Enter: eu):", "mars")
        await person.sees("type one of eu, us")
        await person.answers("search asks for Region [eu/us] (Enter: eu):", "us")
        await person.answers("search asks for Search key:", "typed-key-1")
        await person.sees("in the keyring")
        assert await person.ends() == 0
        assert "typed-key-1" not in person.shown  # it is not echoed
        assert person.shown.count("asks for Search key") == 1  # two servers need it
    servers = home.configuration["servers"]
    assert servers["github"]["env"] == {"GITHUB_TOKEN": "${keyring:hubbub/github/GITHUB_TOKEN}"}
    assert servers["search"]["args"] == ["search", "--region=us"]
    assert servers["search"]["env"] == {"SEARCH_WITH": "${keyring:hubbub/search/SEARCH_WITH}"}
    assert servers["notes"]["headers"] == {"Authorization": "${keyring:hubbub/notes/Authorization}"}
    assert home.keyring() == {
        "hubbub/github/GITHUB_TOKEN": SECRET,
        "hubbub/search/SEARCH_WITH": "typed-key-1",
        "hubbub/notes/Authorization": "Bearer typed-key-1",
    }
    assert SECRET not in home.file.read_text()


async def test_enter_leaves_what_a_folder_brings_and_all_takes_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    own = home.path / "own"
    own.mkdir()
    home.path, home.folder = own, home.folder  # a home without any file of a host
    monkeypatch.chdir(home.folder)
    async with on_a_terminal([str(BIN / "hubbub"), "init"], home.environ) as person:
        await person.answers("Which? (numbers such as 1 3-5; or all; or none)", "")
        await person.answers("type numbers of the first column", "none")
        assert await person.ends() == 0
    assert not home.file.exists()
    (own / ".claude.json").write_text(json.dumps({"mcpServers": {"mine": {"command": "mine"}}}))
    async with on_a_terminal([str(BIN / "hubbub"), "init"], home.environ) as person:
        await person.answers("Enter takes the one that is new and not from this folder", "")
        await person.answers("Shall somebody approve each call", "")
        assert await person.ends() == 0
    assert home.configuration["servers"] == {"mine": {"command": "mine", "confirm": "writes"}}


async def test_a_home_without_any_server_says_how_to_add_one(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    ran = await Home(tmp_path, tmp_path / "f").hubbub("init")
    assert (ran.status, "hubbub servers add NAME" in ran.err) == (0, True)


async def test_a_configuration_that_the_hub_would_not_take_is_not_written(home: Home) -> None:
    home.file.parent.mkdir(parents=True)
    home.file.write_text("[hub]\nlog_lvel = 'info'\n")
    ran = await home.hubbub("init", "--yes")
    assert (ran.status, "did you mean 'log_level'" in ran.err) == (1, True)
    assert home.file.read_text() == "[hub]\nlog_lvel = 'info'\n"


async def test_values_are_set_if_the_hub_takes_them_and_the_rest_stays(home: Home) -> None:
    assert (await home.hubbub("config", "path")).out == f"{home.file}\n"
    assert (await home.hubbub("config", "set", "hub.log_level", "debug")).status == 0
    home.file.write_text(home.file.read_text() + "# kept\n")
    ran = await home.hubbub("config", "set", "servers.x.command", "server")
    assert (ran.status, "no hub runs; start one: hubbub up -d" in ran.err) == (0, True)
    assert "# kept" in home.file.read_text()
    assert home.configuration == {"hub": {"log_level": "debug"}, "servers": {"x": {"command": "server"}}}
    content = home.file.read_bytes()
    for key, value, why in (
        ("hub.log_lvel", "debug", "hub.log_lvel: unknown key; did you mean 'log_level'?"),
        ("hub.log_level", "loud", "hub.log_level"),
        ("hub.max_servers", "many", "hub.max_servers"),
        ("servers.x.arg", "[]", "did you mean 'args'"),
        ("log_level", "debug", "log_level"),
    ):
        refused = await home.hubbub("config", "set", key, value)
        assert (refused.status, why in refused.err) == (1, True), refused.err
    assert home.file.read_bytes() == content
    assert (await home.hubbub("config", "set", "a..b", "1")).status == 2


async def test_an_edit_is_taken_only_if_the_hub_takes_it(home: Home) -> None:
    def editor(text: str) -> dict[str, str]:
        script = home.path / "editor.py"
        script.write_text(f"import sys; open(sys.argv[1], 'w').write({text!r})")
        return {"VISUAL": "", "EDITOR": f"{sys.executable} {script}"}

    assert (await home.hubbub("config", "edit", **editor("[hub]\nlog_level = 'debug'\n"))).status == 0
    assert home.configuration == {"hub": {"log_level": "debug"}}
    refused = await home.hubbub("config", "edit", **editor("[hub]\nlog_lev = 'debug'\n"))
    assert (refused.status, "did you mean 'log_level'" in refused.err) == (1, True)
    assert home.configuration == {"hub": {"log_level": "debug"}}
    same = await home.hubbub("config", "edit", **editor("[hub]\nlog_level = 'debug'\n"))
    assert (same.status, "is as it was" in same.err) == (0, True)
    for command in ("/no/such/editor", "false", "'"):
        assert (await home.hubbub("config", "edit", VISUAL=command)).status == 1
    assert home.configuration == {"hub": {"log_level": "debug"}}


async def test_a_file_that_changes_while_it_is_edited_is_not_overwritten_and_the_edit_is_not_lost(home: Home) -> None:
    home.file.parent.mkdir(parents=True)
    home.file.write_text("[hub]\nlog_level = 'info'\n")
    script = home.path / "editor.py"
    script.write_text(
        f"import sys; open({str(home.file)!r}, 'a').write('# theirs\\n'); open(sys.argv[1], 'a').write('# mine\\n')"
    )
    ran = await home.hubbub("config", "edit", VISUAL=f"{sys.executable} {script}", TMPDIR=str(home.path))
    assert (ran.status, "it has been changed meanwhile" in ran.err) == (1, True), ran.err
    assert home.file.read_text() == "[hub]\nlog_level = 'info'\n# theirs\n"
    (kept,) = home.path.glob("hubbub-*/hubbub.toml")
    assert f"what you wrote is in {kept}" in ran.err
    assert kept.read_text() == "[hub]\nlog_level = 'info'\n# mine\n"


async def test_a_reference_that_leads_nowhere_here_is_named_and_stops_no_change(home: Home) -> None:
    home.file.parent.mkdir(parents=True)
    home.file.write_text('[servers.x]\ncommand = "x"\nenv = { A = "${NOWHERE}" }\n')
    ran = await home.hubbub("config", "set", "hub.log_level", "debug")
    assert (ran.status, "NOWHERE is not set" in ran.err) == (0, True), ran.err
    assert home.configuration["hub"] == {"log_level": "debug"}
    malformed = await home.hubbub("config", "set", "servers.x.env.A", "${x y}")
    assert (malformed.status, "servers.x.env.A" in malformed.err) == (1, True), malformed.err


async def test_a_secret_that_is_set_is_offered_to_the_keyring(home: Home) -> None:
    home.with_keyring()
    home.file.parent.mkdir(parents=True)
    home.file.write_text('[servers.x]\ncommand = "x"\n')
    command = [str(BIN / "hubbub"), "config", "set", "servers.x.env.API_KEY", "s3cretword"]
    async with on_a_terminal(command, home.environ) as person:
        await person.answers("Keep 1 secret in your system's keyring instead of the file?", "")
        await person.sees("is set")
        assert await person.ends() == 0
    assert home.configuration["servers"]["x"]["env"] == {"API_KEY": "${keyring:hubbub/x/API_KEY}"}
    assert home.keyring() == {"hubbub/x/API_KEY": "s3cretword"}
    ran = await home.hubbub("config", "set", "servers.x.env.OTHER_KEY", "s3cretword")
    assert (ran.status, "goes into the file, which only you can read: x: env OTHER_KEY" in ran.err) == (0, True)
    assert home.configuration["servers"]["x"]["env"]["OTHER_KEY"] == "s3cretword"


async def test_one_host_or_one_file_is_imported_and_a_dry_run_only_shows(home: Home) -> None:
    dry = await home.hubbub("config", "import", "claude-desktop", "--dry-run")
    assert (dry.status, "github" in dry.out, home.file.exists()) == (0, True, False)
    told = await home.hubbub("config", "import", "claude-desktop", "--file", "other.toml")
    assert (told.status, "`hubbub config import claude-desktop --file other.toml --yes`" in told.err) == (2, True)
    assert (await home.hubbub("config", "import", "claude-desktop", "--yes")).status == 0
    assert home.configuration["servers"].keys() == {"files", "github", "literal"}
    codex = str(home.path / ".codex/config.toml")
    assert (await home.hubbub("config", "import", codex, "--yes")).status == 0
    assert "docs" in home.configuration["servers"]
    for source, status, words in (
        ("emacs", 2, "is neither a file nor one of claude-code, claude-desktop, codex"),
        ("./none.json", 1, "there is no such file"),
        (str(home.path / "secrets.env"), 1, "it is not JSON"),
    ):
        refused = await home.hubbub("config", "import", source, "--yes")
        assert (refused.status, words in refused.err) == (status, True), refused.err


async def test_the_hub_that_runs_reads_a_server_that_is_saved_and_takes_one_of_the_owner(
    home: Home, peer_scripts: Path
) -> None:
    script = str(peer_scripts / "plain_server.py")
    home.file.parent.mkdir(parents=True)
    home.file.write_text("[hub]\nshutdown_grace_s = 1  # mine\n")
    data = home.path / "data"
    arguments = ["--config", str(home.file), "--data-dir", str(data), "--listen", "127.0.0.1:0"]
    here = ("--data-dir", str(data))
    async with running(arguments, env=home.environ) as hub:
        added = await home.hubbub(*here, "servers", "add", "mine", "--", sys.executable, script, "stdio")
        assert added.status == 0, added.err
        await hub.connected("mine")
        assert (await home.hubbub(*here, "--json", "servers", "get", "mine")).record["trusted"]
        assert "added by the owner" in (await home.hubbub(*here, "servers", "get", "mine")).out
        saved = await home.hubbub(
            *here, "servers", "add", "kept", "--save", "--env", "API_KEY=k1", "--", sys.executable, script, "stdio"
        )
        assert saved.status == 0, saved.err
        assert "goes into the file, which only you can read: kept: env API_KEY" in saved.err
        await hub.connected("kept")
        twice = await home.hubbub(*here, "--json", "servers", "add", "kept", "--save", "--", "x")
        assert (twice.status, twice.error["reason"]) == (1, "SERVER_EXISTS")
        wrong = await home.hubbub(*here, "servers", "add", "w", "--save", "--set", "call_timeout_s=-1", "--", "x")
        assert (wrong.status, "call_timeout_s" in wrong.err) == (1, True), wrong.err
        told = await home.hubbub(*here, "config", "set", "hub.log_level", "info")
        assert "the hub that runs reads it within a few seconds" in told.err
        local = json.loads((data / "client.json").read_text())["token"]
        far = await home.hubbub("--address", "https://hub.example:7878", "--token", "x", "config", "path")
        assert far.out == f"{home.file}\n"
        named = await home.hubbub(*here, "--as", "ada", "servers", "add", "no", "--", "no-such", "--word", "w o")
        assert '  allow_commands = [\n    { command = "no-such", args = ["--word", "w o"] },\n  ]\n' in named.err
        assert f"have this in {home.file}" in named.err
        assert local not in named.err
        await hub.terminate()
    assert home.file.read_text().startswith("[hub]\nshutdown_grace_s = 1  # mine\n")
    assert home.configuration["servers"].keys() == {"kept"}
    async with running(arguments, env=home.environ) as hub:
        await hub.connected("mine", "kept")
