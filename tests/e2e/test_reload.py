"""A hub takes over its configuration while it runs: only what changed is touched, and what is wrong changes nothing."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from .conftest import LIMIT_S, POLL_S, environment, running, toml


class Files:
    """A directory of configuration files."""

    def __init__(self, directory: Path, peer_scripts: Path) -> None:
        self.directory = directory
        self._peer = {"command": sys.executable, "args": [str(peer_scripts / "plain_server.py")]}

    def path(self, name: str = "hub.toml") -> Path:
        return self.directory / name

    def text(self, *servers: str, hub: Any = None, **options: Any) -> str:
        return toml({"hub": hub or {}, "servers": dict.fromkeys(servers, self._peer | options)})

    def write(self, text: str, name: str = "hub.toml") -> None:
        self.path(name).write_text(text)


@pytest.fixture
def files(tmp_path: Path, peer_scripts: Path) -> Files:
    directory = tmp_path / "etc"
    directory.mkdir()
    return Files(directory, peer_scripts)


@pytest.fixture
async def start(tmp_path: Path, files: Files) -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as stack:

        async def begin(*names: str) -> Any:
            words = [word for name in names or ("hub.toml",) for word in ("--config", str(files.path(name)))]
            place = ["--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
            return await stack.enter_async_context(running([*words, *place]))

        yield begin


async def status(hub: Any, wanted: Callable[[Any], bool]) -> Any:
    """The configuration as the hub shows it, once it is as wanted."""
    with anyio.fail_after(LIMIT_S):
        while not wanted(config := (await hub.client.admin.status()).config):
            await anyio.sleep(POLL_S)
    return config


async def names(hub: Any, *wanted: str) -> None:
    """Waits until the hub has these servers and no others."""
    with anyio.fail_after(LIMIT_S):
        while {server.name for server in await hub.client.servers.list()} != {*wanted}:
            await anyio.sleep(POLL_S)


async def test_only_what_changed_is_touched_and_a_call_of_another_server_goes_on(start: Any, files: Files) -> None:
    files.write(files.text("stays", "goes"))
    hub = await start()
    await hub.connected("stays", "goes")
    before = await hub.client.servers.get("stays")
    call = await hub.client.start_tool("stays", "ask", {"message": "Who?"})
    (question,) = await hub.asked()

    # The last change that the hub finds by itself: those below are asked for, and none may come first.
    by_hand = {"watch_config": False}
    files.write(files.text("stays", hub=by_hand) + files.text("new").partition("[servers]\n")[2])
    await names(hub, "stays", "new")
    await hub.connected("new")
    after = await hub.client.servers.get("stays")
    assert (after.pid, after.state) == (before.pid, "connected")
    await hub.answer(question, "--accept", '{"name": "Ada"}')
    assert (await hub.call(call.id)).state == "completed"

    rest = files.text("new").partition("[servers]\n")[2]
    files.write(files.text("stays", hub=by_hand, max_in_flight=4) + rest)
    assert (await hub.hubbub("reload")).record["changed"] == ["stays"]
    assert (await hub.client.servers.get("stays")).pid == before.pid

    files.write(files.text("stays", hub=by_hand, max_in_flight=4, sampling=False) + rest)
    done = (await hub.hubbub("reload")).record
    fresh = await hub.watched(
        hub.client.servers.watch(["stays"]), lambda s: s.state == "connected" and s.pid != before.pid
    )
    assert fresh
    assert (await hub.client.servers.get("new")).state == "connected"
    assert done["removed"] == []


async def test_a_wrong_file_changes_nothing_and_is_said_until_it_is_right(start: Any, files: Files) -> None:
    files.write(files.text("one"))
    hub = await start()
    await hub.connected("one")
    pid = (await hub.client.servers.get("one")).pid

    files.write("[servers.one\n")
    config = await status(hub, lambda c: c.problem)
    assert "hub.toml" in config.problem
    refused = await hub.hubbub("reload")
    assert (refused.status, refused.error["reason"]) == (1, "CONFIG_REJECTED")
    assert "hub.toml" in refused.error["message"]
    assert (await hub.client.servers.get("one")).pid == pid

    files.path().unlink()
    await status(hub, lambda c: c.problem and "cannot be read" in c.problem)
    files.write("")
    await status(hub, lambda c: c.problem and "is empty" in c.problem)
    assert (await hub.client.servers.get("one")).pid == pid

    files.write(files.text("one"))
    await status(hub, lambda c: not c.problem)
    assert (await hub.client.servers.get("one")).pid == pid


async def test_files_are_followed_however_they_are_replaced(start: Any, files: Files) -> None:
    for version, servers in (("v1", ["a"]), ("v2", ["a", "b"])):
        files.path(version).mkdir()
        files.write(files.text(*servers), f"{version}/hub.toml")
    files.path("..data").symlink_to("v1")
    files.path("hub.toml").symlink_to("..data/hub.toml")
    files.write(files.text("other"), "more.toml")
    hub = await start("hub.toml", "more.toml")
    await names(hub, "a", "other")

    files.path("..tmp").symlink_to("v2")  # as Kubernetes replaces what a ConfigMap is mounted as
    files.path("..tmp").rename(files.path("..data"))
    await names(hub, "a", "b", "other")

    files.write(files.text("other", "third"), "more.toml~")  # as editors do
    files.path("more.toml~").rename(files.path("more.toml"))
    await names(hub, "a", "b", "other", "third")

    with files.path("more.toml").open("r+") as file:  # in place
        file.truncate()
        file.write(files.text("last"))
    await names(hub, "a", "b", "last")

    os.kill(hub.process.pid, signal.SIGHUP)
    assert (await hub.hubbub("reload")).record == {
        "added": [],
        "changed": [],
        "removed": [],
        "settings": [],
        "needs_restart": [],
    }


async def test_a_server_of_the_api_follows_what_is_allowed_and_gives_its_name_to_a_file(
    start: Any, files: Files, peer_scripts: Path
) -> None:
    script = str(peer_scripts / "plain_server.py")
    by_hand = {"watch_config": False, "trust_local": False}
    allowed = by_hand | {"allow_commands": [{"command": sys.executable, "args": [script]}]}
    files.write(files.text(hub=allowed))
    hub = await start()
    added = await hub.hubbub("servers", "add", "mine", "--env", "WORD=secret", "--", sys.executable, script)
    assert added.error["reason"] == "COMMAND_NOT_ALLOWED"
    assert (await hub.hubbub("servers", "add", "mine", "--", sys.executable, script)).status == 0
    await hub.connected("mine")

    files.write(files.text(hub=by_hand))
    assert (await hub.hubbub("reload")).record["settings"] == ["allow_commands"]
    (shown,) = await hub.watched(hub.client.servers.watch(["mine"]), lambda s: s.error is not None)
    assert shown.error.code == "COMMAND_NOT_ALLOWED"

    files.write(files.text(hub=allowed))
    await hub.hubbub("reload")
    await hub.connected("mine")

    files.write(files.text("mine", hub=by_hand))
    assert (await hub.hubbub("reload")).record["changed"] == ["mine"]
    refused = await hub.hubbub("servers", "remove", "mine")
    assert refused.error["reason"] == "SERVER_READ_ONLY"
    await hub.connected("mine")


async def test_the_default_file_is_read_once_it_is_there_and_its_end_removes_no_server_by_itself(
    tmp_path: Path, files: Files
) -> None:
    default = tmp_path / "config/hubbub/hubbub.toml"
    env = environment() | {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    async with running(["--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"], env=env) as hub:
        config = (await hub.client.admin.status()).config
        assert (config.files, config.watched) == ((str(default),), True)
        default.parent.mkdir(parents=True)
        default.write_text(files.text("one"))
        await hub.connected("one")
        default.unlink()
        await status(hub, lambda config: "is gone" in (config.problem or ""))
        await names(hub, "one")
        await hub.client.admin.reload()
        await names(hub)
