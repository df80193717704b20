"""A hub whose records are in PostgreSQL: what it promises holds over kills of the hub and of the database."""

import secrets
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub_client import Unavailable

from ..postgres import Postgres
from .conftest import LIMIT_S, POLL_S, environment, toml


@pytest.fixture
def store(postgres: Postgres) -> dict[str, Any]:
    """The table `[store]` of this test's hubs."""
    return {"url": postgres.url, "schema_name": f"t{secrets.token_hex(8)}", "unavailable_after_s": 1}


@pytest.fixture
def start(start_hub: Any, store: dict[str, Any]) -> Callable[..., Any]:
    """Starts hubs one after the other over one schema of the database."""
    return partial(start_hub, store=store)


@pytest.fixture
def servers(peer_scripts: Path) -> dict[str, Any]:
    script = str(peer_scripts / "asking_server.py")
    return {"asking": {"command": sys.executable, "args": [script, "stdio"], "protocol": "2025-11-25"}}


async def ask(hub: Any) -> Any:
    call = await hub.client.start_tool("asking", "ask")
    return (await hub.asked(call_id=call.id))[0]


async def test_an_acknowledged_answer_survives_kill_9_of_the_hub(start: Any, servers: Any, tmp_path: Path) -> None:
    first = await start(servers)
    await first.connected("asking")
    asked = await ask(first)
    await first.client.inbox.answer(asked.id, accept={"name": "Ada"})
    await first.kill()

    second = await start(servers)
    shown = (await second.hubbub("inbox", "show", asked.id)).record
    assert (shown["state"], shown["answer"]) == ("answered", {"action": "accept", "content": {"name": "Ada"}})
    again = await second.hubbub("inbox", "answer", asked.id, "--decline")
    assert (again.status, again.error["reason"]) == (1, "ALREADY_ANSWERED")
    copied = await second.hubbub("store", "backup", str(tmp_path / "copy.db"))
    assert copied.status == 0
    assert (await second.client.store.stats()).keys > 0
    assert not list(tmp_path.rglob("hubbub.db"))


async def test_an_answer_waits_for_a_database_that_is_away_or_is_refused_and_then_accepted(
    start: Any, servers: Any, postgres: Postgres
) -> None:
    if postgres.data is None:
        pytest.skip("HUBBUB_TEST_PG names a server that tests may not stop")
    hub = await start(servers)
    await hub.connected("asking")
    asked = await ask(hub)
    await anyio.to_thread.run_sync(postgres.stop)
    try:
        with pytest.raises(Unavailable):
            await hub.client.inbox.answer(asked.id, accept={"name": "Ada"}, answer_id="only-this-one-1")
        assert (await hub.client.inbox.get(asked.id)).state == "open"
    finally:
        await anyio.to_thread.run_sync(postgres.start)
    with anyio.fail_after(LIMIT_S):
        while True:
            try:
                await hub.client.inbox.answer(asked.id, accept={"name": "Ada"}, answer_id="only-this-one-1")
                break
            except Unavailable:
                await anyio.sleep(POLL_S)
    assert (await hub.call(asked.call_id, "completed")).result["content"]


async def test_a_second_hub_over_the_same_schema_does_not_start(
    start: Any, store: dict[str, Any], tmp_path: Path
) -> None:
    await start()
    refused = await hubbubd(tmp_path, store, "--listen", "127.0.0.1:0")
    assert refused.returncode == 1
    assert b"is in use by another hub" in refused.stderr


async def test_the_configuration_s_check_looks_at_the_database(store: dict[str, Any], tmp_path: Path) -> None:
    found = await hubbubd(tmp_path, store, "--check-config")
    assert b"store: the database can be used" in found.stdout
    assert found.returncode == 0


async def hubbubd(directory: Path, store: dict[str, Any], *words: str) -> Any:
    """A hub with a data directory of its own, to its end."""
    config = directory / "other.toml"
    config.write_text(toml({"store": store}))
    command = ["-m", "hubbubd", "--config", str(config), "--data-dir", str(directory / "other"), *words]
    return await anyio.run_process([sys.executable, *command], check=False, env=environment())
