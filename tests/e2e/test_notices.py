"""Who learns that something waits: commands, webhooks, the shell's completion."""

import hashlib
import hmac
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub_cli.notices.notice_queue import WORKERS

from ..http_sink import answering

LIMIT_S = 60
POLL_S = 0.02
SECRET = "a secret of these two"
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any, peer_scripts: Path) -> Any:
    """A hub with a server that asks what it is asked to."""
    server = {"command": sys.executable, "args": ["-I", "-S", str(peer_scripts / "relay_server.py")]}
    hub = await start_shared_hub(
        {"relay": server, "other": {"url": "http://127.0.0.1:9/mcp", "retries": 0}},
        hub={"allow_commands": [{"command": sys.executable, "args": ["**"]}]},
    )
    await hub.connected("relay")
    return hub


async def ask(hub: Any, message: str) -> Any:
    """Something that is asked."""
    params = {"message": message, "requestedSchema": {"type": "object", "properties": {}}}
    arguments = {"method": "elicitation/create", "params": params}
    await hub.client.start_tool("relay", "ask", arguments)
    opened = hub.client.inbox.watch(states=["open"])
    (asked,) = await hub.watched(opened, lambda each: each.request["message"] == message)
    return asked


async def test_a_webhook_gets_each_question_once_signed_and_again_when_it_was_busy(
    hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = await ask(hub, "for the webhook")
    async with answering([503], then=204, path="/hook?for=us") as (url, came):
        monkeypatch.setattr("os.environ", {**os.environ, "HUBBUB_WEBHOOK_SECRET": SECRET})
        command = [str(BIN / "hubbub"), "--data-dir", str(hub.data_dir), "inbox", "watch", "--webhook", url]
        async with await anyio.open_process(command, env=dict(os.environ), stdout=None, stderr=None) as watching:
            with anyio.fail_after(LIMIT_S):
                while len(came) < 2:
                    await anyio.sleep(POLL_S)
            await asked.accept({})
            next_one = await ask(hub, "the next")
            with anyio.fail_after(LIMIT_S):
                while len(came) < 3:
                    await anyio.sleep(POLL_S)
            watching.terminate()
        await next_one.decline()
    assert [json.loads(body)["id"] for _, body in came] == [asked.id, asked.id, next_one.id]
    for headers, body in came:
        moment, digest = re.fullmatch(r"t=(\d+),v1=([0-9a-f]{64})", headers["hubbub-signature"]).groups()  # type: ignore[union-attr]
        assert digest == hmac.new(SECRET.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
        assert headers["hubbub-request-id"] == json.loads(body)["id"]
        assert hub.token not in body.decode() + str(headers)


@pytest.mark.parametrize("url", ["http://example.com/hook", "ftp://127.0.0.1/", "https://", "nonsense"])
async def test_a_webhook_where_others_could_listen_is_refused(hub: Any, url: str) -> None:
    ran = await hub.hubbub("inbox", "watch", "--webhook", url)
    assert (ran.status, ran.error["reason"]) == (2, "USAGE")
    assert "https" in ran.error["message"]


async def test_a_command_that_fails_does_not_stop_the_watch(hub: Any, tmp_path: Path) -> None:
    told = tmp_path / "told"
    command = f'echo "$HUBBUB_REQUEST_ID" >> {shlex.quote(str(told))}; cat > {tmp_path}/$HUBBUB_REQUEST_ID; exit 3'
    watching = await hub.start_hubbub("inbox", "watch", "--state", "open", "--exec", command)
    await watching.until(lambda line: line["type"] == "synced")
    asked = [await ask(hub, f"number {number}") for number in range(3)]
    with anyio.fail_after(LIMIT_S):
        while not told.exists() or len(told.read_text().split()) < 3:
            await anyio.sleep(POLL_S)
    assert sorted(told.read_text().split()) == sorted(each.id for each in asked)
    for each in asked:
        await each.decline()
        await watching.until(lambda line, id_=each.id: line["type"] == "removed" and line["record"]["id"] == id_)
    assert await watching.interrupt() == 0


async def test_what_a_server_writes_is_never_part_of_the_command(hub: Any, tmp_path: Path) -> None:
    hostile = f"'; touch {tmp_path}/a; \"; touch {tmp_path}/b #\n$(touch {tmp_path}/c) `touch {tmp_path}/d` ${{IFS}}\\"
    command = f"cat > {tmp_path}/told.part && mv {tmp_path}/told.part {tmp_path}/told"
    watching = await hub.start_hubbub("inbox", "watch", "--state", "open", "--exec", command)
    await watching.until(lambda line: line["type"] == "synced")
    asked = await ask(hub, hostile)
    with anyio.fail_after(LIMIT_S):
        while not (tmp_path / "told").exists():
            await anyio.sleep(POLL_S)
    told = json.loads((tmp_path / "told").read_text())
    assert (told["id"], told["request"]["message"]) == (asked.id, hostile)
    assert [path.name for path in tmp_path.iterdir()] == ["told"]
    await asked.decline()
    assert await watching.interrupt() == 0


async def test_commands_that_never_end_are_ended_and_others_have_their_turn(hub: Any, tmp_path: Path) -> None:
    command = f"echo $$ >> {tmp_path}/begun; sleep 1000 & wait"
    words = ("inbox", "watch", "--state", "open", "--exec", command, "--exec-timeout", "4")
    watching = await hub.start_hubbub(*words)
    await watching.until(lambda line: line["type"] == "synced")
    # One more than run at once.
    asked = [await ask(hub, f"endless {number}") for number in range(WORKERS + 1)]
    with anyio.fail_after(LIMIT_S):
        while len(begun := _numbers(tmp_path / "begun")) < len(asked):
            await anyio.sleep(POLL_S)
        while any(_alive_in_session(pid) for pid in begun):
            await anyio.sleep(POLL_S)
    for each in asked:
        await each.decline()
    assert await watching.interrupt() == 0


async def test_commands_end_with_the_watch_and_hold_nobody_up_who_is_told_otherwise(hub: Any, tmp_path: Path) -> None:
    command = f"echo $$ >> {tmp_path}/begun; sleep 1000 & wait"
    async with answering([], then=204, path="/hook?for=us") as (url, came):
        watching = await hub.start_hubbub("inbox", "watch", "--state", "open", "--exec", command, "--webhook", url)
        await watching.until(lambda line: line["type"] == "synced")
        asked = [await ask(hub, f"both ways {number}") for number in range(WORKERS + 1)]
        with anyio.fail_after(LIMIT_S):
            while len(came) < len(asked) or len(_numbers(tmp_path / "begun")) < WORKERS:
                await anyio.sleep(POLL_S)
        assert await watching.interrupt() == 0
    with anyio.fail_after(LIMIT_S):
        while any(_alive_in_session(pid) for pid in _numbers(tmp_path / "begun")):
            await anyio.sleep(POLL_S)
    for each in asked:
        await each.decline()


def _numbers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def _alive_in_session(leader: int) -> bool:
    """Whether a process runs that belongs to the session of this one."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == leader and state not in "ZX":
            return True
    return False
