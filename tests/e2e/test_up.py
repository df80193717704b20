"""A hub started and ended by the command line, as somebody does who has one machine and no configuration."""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from hubbub_shared import platform
from hubbub_shared.platform.directories import default_config_file

from .. import forks
from .conftest import BIN, LIMIT_S, Ran, alive, child, descendants, environment, toml
from .terminals import on_a_terminal
from .test_notify import Receiver, receiver

__all__ = ["receiver"]


@dataclass(frozen=True)
class Home:
    """An empty home directory, and commands that are run in it."""

    path: Path

    @property
    def environ(self) -> dict[str, str]:
        return environment() | {"HOME": str(self.path), "HUBBUBD_LISTEN": "127.0.0.1:0"}

    @property
    def data(self) -> Path:
        return self.path / ".local/share/hubbub"

    @property
    def config(self) -> Path:
        return default_config_file(platform.NAME, self.path, {})

    def configure(self, text: str) -> None:
        self.config.parent.mkdir(parents=True)
        self.config.write_text(text)

    async def hubbub(self, *words: str) -> Ran:
        with anyio.fail_after(2 * LIMIT_S):
            done = await forks.run([str(BIN / "hubbub"), *words], env=self.environ)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    async def up(self, *words: str) -> Any:
        return (await self.hubbub("--json", "up", "-d", *words)).record


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    """No hub outlives the test."""
    made = Home(tmp_path / "home")
    made.path.mkdir()
    yield made
    if (made.data / "hubbub.db.lock").exists():
        await made.hubbub("down", "--now")


@pytest.fixture
def plain(peer_scripts: Path) -> str:
    return toml({"servers": {"plain": {"command": sys.executable, "args": [str(peer_scripts / "plain_server.py")]}}})


async def test_a_hub_starts_with_nothing_configured_and_ends_again(home: Home) -> None:
    first = await home.hubbub("up", "-d")
    assert first.status == 0, first.err
    for place in (
        f"{home.config} (not there yet",
        f"data           {home.data}",
        f"log            {home.data}/hubbubd.log",
    ):
        assert place in first.out
    assert "No servers yet. Take over those you have: hubbub init. Add one: hubbub servers add" in first.out
    assert (await home.hubbub("servers", "list")).status == 0
    ended = await home.hubbub("down")
    assert (ended.status, ended.out) == (0, "The hub has ended; `hubbub up -d` starts it again.\n")
    assert f"Ending the hub of {home.data}" in ended.err
    assert "server" in (home.data / "hubbubd.log").read_text() or not (home.data / "hubbubd.log").read_text()


async def test_a_hub_in_the_background_goes_on_and_a_second_one_is_not_started(home: Home, plain: str) -> None:
    home.configure(plain)
    first, second = await home.up(), await home.up()
    assert alive(first["pid"])
    assert (first["already"], second["already"]) == (False, True)
    assert (second["pid"], second["grpc"], second["data_dir"]) == (first["pid"], first["grpc"], str(home.data))
    assert first["config_files"] == second["config_files"] == [str(home.config)]
    listed = await home.hubbub("--json", "servers", "list", "--wait", "connected", "--timeout", "60")
    assert listed.record["state"] == "connected"
    family = [first["pid"], *descendants(first["pid"])]
    assert len(family) > 1
    ended = await home.hubbub("--json", "down")
    assert ended.record == {"event": "ended", "pid": first["pid"], "data_dir": str(home.data)}
    assert not [pid for pid in family if alive(pid)]
    log = [json.loads(line) for line in (home.data / "hubbubd.log").read_text().splitlines()]
    assert "server connected" in {line["event"] for line in log}


async def test_what_is_not_running_cannot_be_ended(home: Home) -> None:
    ended = await home.hubbub("down")
    assert (ended.status, ended.out) == (1, "")
    assert f"no hub runs for {home.data}; `hubbub up -d` starts one" in ended.err


async def test_a_hub_that_was_killed_leaves_nothing_that_stands_in_the_way(home: Home) -> None:
    first = await home.up()
    os.kill(first["pid"], signal.SIGKILL)
    with anyio.fail_after(LIMIT_S):
        while alive(first["pid"]):
            await anyio.sleep(0.02)
    assert (await home.hubbub("down")).status == 1
    assert not (await home.up())["already"]


@pytest.mark.parametrize(
    ("text", "says"),
    [("[hub\n", "is not valid TOML"), ('[servers.a]\ncolour = "red"\n', "servers.a.colour")],
)
async def test_a_hub_that_does_not_start_says_why_in_its_own_words(home: Home, text: str, says: str) -> None:
    home.configure(text)
    refused = await home.hubbub("--json", "up", "-d")
    assert (refused.status, refused.error["reason"]) == (1, "HUB_NOT_STARTED")
    assert says in refused.error["message"]
    assert str(home.config) in refused.error["message"]


async def test_a_hub_elsewhere_is_neither_started_nor_ended(home: Home) -> None:
    for words in (["up", "-d"], ["up"], ["down"]):
        refused = await home.hubbub("--json", "--address", "127.0.0.1:1", *words)
        assert (refused.status, refused.error["reason"]) == (2, "USAGE")


async def test_in_the_foreground_it_says_how_each_server_is_until_it_is_interrupted(home: Home, plain: str) -> None:
    home.configure(plain + '[servers.lacks]\ncommand = "no-such-command"\n')
    async with child([str(BIN / "hubbub"), "up"], stdout=PIPE, env=home.environ) as process:
        assert process.stdout is not None
        said = BufferedByteReceiveStream(process.stdout)
        lines = list[str]()
        with anyio.fail_after(2 * LIMIT_S):
            while not all(
                any(line.startswith(name) for line in lines) for name in ("plain: connected (stdio, ", "lacks: ")
            ):
                lines.append((await said.receive_until(b"\n", 1 << 16)).decode())
        pid = int(lines[0].rpartition(" ")[2].rstrip("."))
        assert any("COMMAND_NOT_FOUND" in line for line in lines)
        second = await home.hubbub("--json", "up")
        assert second.error["reason"] == "HUB_NOT_STARTED"
        assert f"process {pid}; `hubbub down` ends it" in second.error["message"]
        process.send_signal(signal.SIGINT)
        with anyio.fail_after(LIMIT_S):
            assert await process.wait() == 0
        assert not alive(pid)


@pytest.mark.parametrize("answer", ["\n", "y\n"])
async def test_a_person_whose_command_finds_no_hub_can_start_one_and_the_command_goes_on(
    home: Home, answer: str
) -> None:
    async with on_a_terminal([str(BIN / "hubbub"), "servers", "list"], home.environ) as person:
        await person.sees("Start one now? [Y/n]")
        person.types(answer)
        await person.sees("Started, process ")
        await person.ends()
    assert (await home.hubbub("health")).out == "serving\n"


async def test_a_hub_started_by_hand_says_for_people_what_it_says_to_programs_as_json(home: Home) -> None:
    async with on_a_terminal([str(BIN / "hubbubd")], home.environ) as person:
        await person.sees("Hubbub serves its API at ")
        await person.sees(f"data           {home.data}\n")
        await person.sees(f"hubbub --data-dir {home.data} servers add NAME")
        person.process.send_signal(signal.SIGINT)
        assert await person.ends() == 0
    assert '"ready"' not in person.shown


async def test_a_person_who_wants_no_hub_gets_the_error(home: Home) -> None:
    async with on_a_terminal([str(BIN / "hubbub"), "servers", "list"], home.environ) as person:
        await person.answers("Start one now? [Y/n]", "n")
        await person.sees("start one with `hubbub up -d`")
        assert await person.ends() == 1
    assert not home.data.exists()


async def test_a_script_is_asked_nothing(home: Home) -> None:
    refused = await home.hubbub("--json", "status")
    assert (refused.status, refused.error["reason"], refused.out) == (1, "HUB_UNREACHABLE", "")
    assert "`hubbub up -d`" in refused.error["message"]


async def test_whoever_waits_is_served_by_a_hub_that_comes_later(home: Home) -> None:
    words = [str(BIN / "hubbub"), "--wait", "--connect-timeout", "60", "health"]
    async with child(words, stdout=PIPE, env=home.environ) as waiting:
        await home.up()
        with anyio.fail_after(LIMIT_S):
            assert await waiting.wait() == 0


async def test_calls_under_way_are_given_time_unless_they_are_not_to_be(home: Home, plain: str) -> None:
    home.configure(f"[hub]\nshutdown_grace_s = 3600\n{plain}")
    started = await home.up()
    await home.hubbub("servers", "list", "--wait", "connected", "--timeout", "60")
    words = [str(BIN / "hubbub"), "call", "plain", "ask", '{"message": "Well?"}']
    async with child(words, env=home.environ, stdout=PIPE, stderr=PIPE):
        with anyio.fail_after(LIMIT_S):
            while not (await home.hubbub("--json", "inbox", "list", "--state", "open")).out:
                pass
        ended = await home.hubbub("down", "--now")
    assert ended.status == 0, ended.err
    assert not alive(started["pid"])


async def test_with_a_table_for_notifications_they_are_sent_for_as_long_as_the_hub_runs(
    home: Home, plain: str, receiver: Receiver
) -> None:
    home.configure(f'{plain}[notify]\nurls = ["{receiver.url}"]\nafter_s = 0\n')
    started = await home.up()
    await home.hubbub("servers", "list", "--wait", "connected", "--timeout", "60")
    supervisor = int(Path(f"/proc/{started['pid']}/stat").read_text().rpartition(")")[2].split()[1])
    beside = {*descendants(supervisor)} - {started["pid"], *descendants(started["pid"])}
    assert beside
    await home.hubbub("call", "plain", "ask", '{"message": "Well?"}', "--detach")
    assert len(await receiver.got(1)) == 1
    assert (await home.hubbub("down", "--now")).status == 0
    with anyio.fail_after(LIMIT_S):
        while any(alive(pid) for pid in (supervisor, *beside)):
            await anyio.sleep(0.02)


async def test_a_table_for_notifications_that_is_wrong_keeps_no_hub_from_starting(home: Home) -> None:
    home.configure('[notify]\nurls = ["json://${NO_SUCH_VARIABLE}"]\n')
    started = await home.hubbub("up", "-d")
    assert started.status == 0
    assert "nobody is notified of what waits: " in started.err
    assert "NO_SUCH_VARIABLE" in started.err
