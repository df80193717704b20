"""A hub whose records are in PostgreSQL: what it promises holds over kills of the hub and of the database."""

import secrets
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ..postgres import Postgres


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
