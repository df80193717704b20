"""`hubbub store copy`: a hub goes on with a copy of its store, and a copy that is killed is none."""

import json
import os
import random
import secrets
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import anyio
import pytest

from hubbubd.store import Write
from hubbubd.store.sqlite.sqlite_store import SqliteStore

from .. import forks
from .conftest import BIN, LIMIT_S, Ran, child, environment

RECORDS = 30_000
KILLS = 5


async def hubbub(*words: str, as_json: bool = True, **variables: str) -> Ran:
    command = [str(BIN / "hubbub"), *(["--json"] if as_json else []), *words]
    with anyio.fail_after(LIMIT_S):
        done = await forks.run(command, env=environment() | variables)
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


async def made(path: Path, records: int = 3) -> str:
    """A store with so many records, as a name for the command."""
    store = await SqliteStore.open(path)
    for start in range(0, records, 1000):
        writes = [Write(f"made/{number:06}", b"x" * 300) for number in range(start, min(start + 1000, records))]
        await store.commit(writes)
    await store.close()
    return f"sqlite:{path}"


@pytest.fixture
async def source(tmp_path: Path) -> str:
    return await made(tmp_path / "source" / "hubbub.db")


def database(postgres: Any) -> str:
    return f"{postgres.url}?schema_name=t{secrets.token_hex(8)}"


async def test_what_was_copied_is_one_object_for_programs(source: str, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    ran = await hubbub("store", "copy", source, f"sqlite:{target}", "--verify")
    assert ran.record == {
        "event": "copied",
        "from": source.removeprefix("sqlite:"),
        "to": str(target),
        "copied": True,
        "records": 3,
        "deletions": 0,
        "revision": 1,
        "secrets": None,
        "equal": True,
        "differing": 0,
        "differences": [],
    }
    assert "3 of 3 records copied" in ran.err


async def test_a_refused_copy_says_why_and_is_told_from_wrong_usage(source: str, tmp_path: Path) -> None:
    full = await made(tmp_path / "full.db")
    refused = await hubbub("store", "copy", source, full)
    assert (refused.status, refused.error["reason"]) == (1, "STORE_NOT_COPIED")
    assert "has 3 records already" in refused.error["message"]
    wrong = {
        ("copy.db", source): "FROM and TO are sqlite:PATH or postgresql://",
        (source, source): "FROM and TO are the same store",
        (source, "postgresql://ada:secret@db/hub"): "other users of this machine see a password here",
        (
            source,
            f"sqlite:{tmp_path}/not/made/copy.db",
            "--secrets",
        ): "--secrets needs the hubbub.db of a data directory",
        (source, "postgresql://ada@db/hub", "--config", "missing.toml"): "missing.toml",
    }
    for words, says in wrong.items():
        ran = await hubbub("store", "copy", *words)
        assert ran.status == 2, ran.err
        assert says in ran.error["message"]
        assert "secret@" not in ran.err
    assert not (tmp_path / "not").exists()


async def test_without_its_program_the_command_says_what_is_missing(source: str, tmp_path: Path) -> None:
    alone = tmp_path / "bin"
    alone.mkdir()
    (alone / "python").symlink_to(sys.executable)
    code = "import sys; sys.executable = sys.argv.pop(1); from hubbub_cli import main; main()"
    words = ["-c", code, str(alone / "python"), "--json", "store", "copy", source, "sqlite:x"]
    done = await forks.run([sys.executable, *words], env=environment() | {"PATH": str(alone)})
    assert done.returncode == 1
    assert "hubbubd is not installed" in json.loads(done.stderr.splitlines()[-1])["message"]


async def test_a_copy_that_is_interrupted_gives_up_in_order(tmp_path: Path) -> None:
    source = await made(tmp_path / "source.db", RECORDS)
    target = tmp_path / "copy" / "hubbub.db"
    command = [str(BIN / "hubbub"), "--json", "store", "copy", source, f"sqlite:{target}"]
    async with child(command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE) as running:
        await first_word(running)
        running.send_signal(signal.SIGINT)
        said = await rest(running)
        status = await running.wait()
    if status == 0:
        pytest.skip("it was done before")
    assert (status, json.loads(said.splitlines()[-1])["reason"]) == (1, "STORE_NOT_COPIED")
    assert {each.name for each in target.parent.iterdir()} == {"hubbub.db.lock"}


async def first_word(running: Any) -> None:
    with anyio.fail_after(LIMIT_S):
        while b"records copied" not in await running.stderr.receive():
            pass


async def rest(running: Any) -> str:
    said = b""
    with anyio.fail_after(LIMIT_S):
        async for part in running.stderr:
            said += part
    return said.decode()


async def killed(source: str, target: str, delay_s: float) -> None:
    """Begins a copy, and kills it some time after it has begun to write."""
    command = [sys.executable, "-m", "hubbubd", "--copy-store", source, target]
    async with child(command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE) as running:
        await first_word(running)
        await anyio.sleep(delay_s)
        running.kill()
        await running.wait()


async def finished(source: str, target: str) -> Any:
    """Copies what was killed before; the session of a killed one may still have the lock of a database for a moment."""
    with anyio.fail_after(LIMIT_S):
        while True:
            ran = await hubbub("store", "copy", source, target, "--verify")
            if ran.status == 0:
                return ran.record
            assert "is in use by a hub" in ran.error["message"]
            await anyio.sleep(0.1)


async def test_a_copy_to_a_file_that_is_killed_is_whole_or_none(tmp_path: Path) -> None:
    source = await made(tmp_path / "source.db", RECORDS)
    chance = random.Random(os.getpid())
    for number in range(KILLS):
        target = tmp_path / f"{number}" / "hubbub.db"
        await killed(source, f"sqlite:{target}", chance.random() * 0.2)
        if target.exists():
            with closing(sqlite3.connect(target)) as db:
                assert db.execute("SELECT count(*) FROM entries").fetchone() == (RECORDS,)
        done = await finished(source, f"sqlite:{target}")
        assert done["equal"] is True
        assert {each.name for each in target.parent.iterdir()} == {"hubbub.db", "hubbub.db.lock"}


async def test_a_copy_to_a_database_that_is_killed_is_whole_or_none(postgres: Any, tmp_path: Path) -> None:
    source = await made(tmp_path / "source.db", RECORDS)
    chance = random.Random(os.getpid())
    copied = set[bool]()
    for _ in range(KILLS):
        target = database(postgres)
        await killed(source, target, chance.random() * 0.5)
        done = await finished(source, target)
        assert done["equal"] is True
        copied.add(done["copied"])
    assert True in copied


async def test_a_hub_goes_on_in_a_database_and_back_in_a_file(
    start_hub: Any, postgres: Any, peer_scripts: Path, tmp_path: Path
) -> None:
    script = str(peer_scripts / "asking_server.py")
    servers = {"asking": {"command": sys.executable, "args": [script, "stdio"], "protocol": "2025-11-25"}}
    first = await start_hub(servers, connected=True)
    call = await first.client.start_tool("asking", "ask")
    [asked] = await first.asked(call_id=call.id)
    await first.client.inbox.answer(asked.id, accept={"name": "Ada"})
    await first.call(call.id, "completed")
    await first.terminate()
    file = f"sqlite:{first.data_dir}/hubbub.db"

    async def shown(hub: Any) -> tuple[Any, Any]:
        request = (await hub.hubbub("inbox", "show", asked.id)).record
        assert request["answer"] == {"action": "accept", "content": {"name": "Ada"}}
        return request, (await hub.hubbub("calls", "get", call.id)).record

    schema = f"t{secrets.token_hex(8)}"
    options = {"HUBBUBD_STORE__SCHEMA_NAME": schema}
    there = await hubbub("store", "copy", file, postgres.url, "--verify", **options)
    assert there.record["equal"] is True
    second = await start_hub(servers, store={"url": postgres.url, "schema_name": schema})
    in_database = await shown(second)
    busy = await hubbub("store", "copy", postgres.url, f"sqlite:{tmp_path}/x.db", **options)
    assert (busy.status, "is in use by a hub; stop it" in busy.error["message"]) == (1, True)
    backup = tmp_path / "backup.db"
    assert (await second.hubbub("store", "backup", str(backup))).status == 0
    await second.terminate()

    (first.data_dir / "hubbub.db").unlink()
    back = await hubbub("store", "copy", f"{postgres.url}?schema_name={schema}", file, "--verify")
    assert back.record["equal"] is True
    third = await start_hub(servers)
    assert await shown(third) == in_database
    await third.terminate()

    restored = f"t{secrets.token_hex(8)}"
    again = await hubbub("store", "copy", f"sqlite:{backup}", f"{postgres.url}?schema_name={restored}", "--verify")
    assert again.record["equal"] is True
    fourth = await start_hub(servers, store={"url": postgres.url, "schema_name": restored})
    assert await shown(fourth) == in_database
