"""What `hubbub doctor` finds on this machine, says of servers that are away, and repairs."""

import fcntl
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub.v1 import common_pb2, server_pb2
from hubbub_cli.machine import checks

from .test_cli_words import listed


def seen(directory: Path) -> dict[str, checks.CheckResult]:
    return {each.finding.about: each for each in checks.check_data_directory(directory)}


async def alone(directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, checks.CheckResult]:
    """What is found when no hub answers, but for its configuration: `hubbubd` is not asked."""
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    return {each.finding.about: each async for each in checks.check_without_hub(directory)}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_token_that_others_can_read_is_closed_and_the_owner_keeps_what_they_have(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(0o700)
    client = tmp_path / "client.json"
    client.write_text('{"address": "127.0.0.1:1", "token": "t"}')
    client.chmod(mode)
    found = seen(tmp_path)[str(client)]
    assert (found.finding.verdict, found.repair and found.repair.what) == ("warn", f"chmod go= {client}")
    assert found.repair is not None
    found.repair.do()
    assert client.stat().st_mode & 0o777 == mode & 0o700
    assert seen(tmp_path)[str(client)].finding.verdict == "ok"


def test_a_directory_that_others_can_look_into_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    found = seen(tmp_path)[f"data directory {tmp_path}"]
    assert found.repair is not None
    found.repair.do()
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_is_not_there_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    missing = tmp_path / "a" / "b"
    (found,) = checks.check_data_directory(missing)
    assert found.repair is not None
    found.repair.do()
    assert missing.stat().st_mode & 0o777 == 0o700


def test_what_cannot_be_repaired_is_only_said(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    (found,) = checks.check_data_directory(file)
    assert (found.finding.verdict, found.repair) == ("fail", None)
    (found,) = checks.check_data_directory(file / "below")
    assert (found.finding.verdict, found.repair) == ("warn", None)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"address": null}'])
def test_a_client_file_without_an_address_is_told_of_and_never_taken_away(tmp_path: Path, content: str) -> None:
    tmp_path.chmod(0o700)
    client = tmp_path / "client.json"
    client.write_text(content)
    client.chmod(0o600)
    found = seen(tmp_path)[str(client)]
    assert (found.finding.verdict, found.repair) == ("warn", None)


async def test_a_socket_that_nobody_listens_at_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    (tmp_path / "client.json").write_text(json.dumps({"address": f"unix:{path}"}))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        found = (await alone(tmp_path, monkeypatch))[str(path)]
        assert (found.repair, "something else" in str(found.finding.message)) == (None, True)
    found = (await alone(tmp_path, monkeypatch))[str(path)]
    assert found.repair is not None
    found.repair.do()
    assert not path.exists()
    assert await alone(tmp_path, monkeypatch) == {}


async def test_who_has_taken_the_port_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = tmp_path / "client.json"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        client.write_text(json.dumps({"address": address}))
        found = (await alone(tmp_path, monkeypatch))[f"address {address}"].finding
        assert found.verdict == "fail"
        assert f"process {os.getpid()}, listens there" in str(found.message)
    found = (await alone(tmp_path, monkeypatch))[f"address {address}"].finding
    assert (found.verdict, found.message) == ("warn", "nothing listens there: the hub has ended")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "unix:/nowhere/s"])
async def test_a_hub_that_has_the_store_open_and_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    lock = tmp_path / "hubbub.db.lock"
    lock.write_text("12345\n")
    client = tmp_path / "client.json"
    client.write_text(json.dumps({"address": address}))
    assert "store" not in await alone(tmp_path, monkeypatch)  # the lock of a hub that has ended
    with lock.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        (found,) = [each.finding for each in (await alone(tmp_path, monkeypatch)).values()]
        assert (found.verdict, found.message) == ("fail", "process 12345 has it open, and does not answer")
        assert found.advice == "end it, if it hangs: kill 12345"
        client.unlink()
        (found,) = [each.finding for each in (await alone(tmp_path, monkeypatch)).values()]
        assert "a hub runs, and no client.json says where" in str(found.message)
        assert "hubbub down" in str(found.advice)


async def test_a_pipe_in_place_of_the_client_file_is_told_of_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    client = tmp_path / "client.json"
    os.mkfifo(client, 0o600)
    assert seen(tmp_path)[str(client)].finding.message == "it cannot be read"
    assert await alone(tmp_path, monkeypatch) == {}


async def test_a_name_that_no_host_can_have_is_an_address_where_nothing_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{'a' * 70}.test:7"
    (tmp_path / "client.json").write_text(json.dumps({"address": address}))
    assert (await alone(tmp_path, monkeypatch))[f"address {address}"].finding.verdict == "warn"


async def test_a_hub_elsewhere_that_is_not_there_is_not_offered_to_be_started_here(hub: Any, typed: Any) -> None:
    ran = await typed("--address", "127.0.0.1:1", "doctor", "--json")
    first = ran.lines[0]
    assert (ran.status, first["about"], first["verdict"]) == (1, "hub", "fail")
    assert "hubbub up" not in first["advice"]
    assert "HUBBUB_ADDRESS" in first["advice"]


async def test_the_hub_to_start_is_that_of_the_directory_that_was_named(
    typed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    ran = await typed("--data-dir", str(tmp_path / "none"), "doctor", "--json")
    assert ran.lines[0]["advice"].startswith(f"start one: hubbub --data-dir {tmp_path / 'none'} up -d;")


async def test_a_hub_without_servers_is_told_how_to_get_some(hub: Any, typed: Any) -> None:
    listed(hub)
    ran = await typed("doctor")
    assert "warn  servers: the hub has none yet\n      add one: hubbub servers add NAME" in ran.out


@pytest.mark.parametrize(
    ("variables", "about", "message"),
    [
        ({}, "configuration", "ok"),
        ({"HUBBUBD_LOG_LEVEL": "loud"}, "configuration", "HUBBUBD_LOG_LEVEL"),
        ({"HUBBUBD_LISTEN": "127.0.0.1:PORT"}, "listen 127.0.0.1:PORT", "in use, by "),
    ],
)
async def test_what_would_stop_a_hub_is_found_without_one(
    hub: Any, hubbub: Any, tmp_path: Path, variables: dict[str, str], about: str, message: str
) -> None:
    await hub.stop()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        env = {name: value.replace("PORT", port) for name, value in variables.items()} | {"HOME": str(tmp_path)}
        ran = await hubbub("doctor", env=env)
    assert ran.status == 1
    found = {line["about"]: line for line in ran.lines}
    assert len(found) == len(ran.lines)
    told = found[about.replace("PORT", port)]
    assert message in (told["message"] if variables else told["verdict"])


async def test_repairs_need_consent(hub: Any, hubbub: Any) -> None:
    await hub.stop()
    client = hub.data_dir / "client.json"
    client.chmod(0o644)
    for words in (("doctor", "--fix"), ("doctor", "--yes")):
        assert (await hubbub(*words)).status == 2
    assert client.stat().st_mode & 0o777 == 0o644
    ran = await hubbub("doctor", "--fix", "--yes")
    assert {"repair": f"chmod go= {client}", "done": True} in ran.lines
    assert ran.status == 1  # the hub is still not there
    assert client.stat().st_mode & 0o777 == 0o600


GONE = [
    ("COMMAND_NOT_FOUND", b'{"command":"/usr/bin/npx"}', "install Node.js, which brings npx"),
    ("COMMAND_NOT_FOUND", b'{"command":"uvx"}', "install uv, which brings uvx"),
    ("COMMAND_NOT_FOUND", b'{"command":"mine"}', "write its whole path"),
    ("VARIABLE_NOT_SET", b"{}", "${NAME:-default}"),
    ("CONNECTION_LOST", b"{}", "\n      hubbub servers connect away\n"),
    ("HOST_NOT_ALLOWED", b"{}", "allow_hosts"),
]


@pytest.mark.parametrize(("code", "details", "advice"), GONE)
async def test_of_a_server_that_is_away_it_is_said_what_helps(
    hub: Any, typed: Any, code: str, details: bytes, advice: str
) -> None:
    fault = common_pb2.Fault(code=code, message="it failed", details=details)
    away = server_pb2.Server(name="away", state=1, desired_state=2, error=fault, gave_up=True)
    listed(hub, away)
    ran = await typed("doctor")
    assert ran.status == 1
    assert advice in ran.out
    assert "gave up" in ran.out
    assert "hubbub servers connect away" in ran.out
    assert f"hubbub explain {code}" in ran.out


@pytest.mark.usefixtures("processes")
async def test_what_a_killed_hub_has_left_behind_is_found_and_can_be_ended() -> None:
    ended = await anyio.run_process([sys.executable, "-c", "import os; print(os.getpid())"])
    mark = f"{int(ended.stdout)}.0123"
    async with await anyio.open_process(["sleep", "600"], env={"HUBBUB_CONNECTION": mark}) as left:
        (found,) = (each for each in checks.check_orphaned_processes() if each.finding.about == f"process {left.pid}")
        assert found.repair is not None
        found.repair.do()
        with anyio.fail_after(60):
            assert await left.wait() == -signal.SIGTERM


@pytest.mark.usefixtures("processes")
async def test_what_servers_of_a_running_hub_have_started_is_not_taken_for_left_behind() -> None:
    async with await anyio.open_process(["sleep", "600"], env={"HUBBUB_CONNECTION": f"{os.getpid()}.0123"}) as server:
        assert not any(each.finding.about == f"process {server.pid}" for each in checks.check_orphaned_processes())
        server.kill()
