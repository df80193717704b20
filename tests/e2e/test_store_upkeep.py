"""What a hub leaves on the disk, what it gives back, and what a copy of its store is good for."""

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from .conftest import LIMIT_S, POLL_S, RunningHub

MARKER = "call me Quartermaine-7731"
AGE_S = 1.0


@pytest.fixture
def asking(peer_scripts: Path) -> dict[str, Any]:
    script = str(peer_scripts / "asking_server.py")
    return {"command": sys.executable, "args": [script, "stdio"], "protocol": "2025-11-25"}


def traces(directory: Path) -> list[str]:
    """The files of the hub that have the marker in them."""
    return sorted(file.name for file in directory.iterdir() if file.is_file() and MARKER.encode() in file.read_bytes())


async def confide(hub: RunningHub) -> Any:
    """A call that carries the marker, its question and its answer, to its end."""
    call = await hub.client.start_tool("asking", "ask", {"message": MARKER})
    (request,) = await hub.asked()
    await request.accept({"name": MARKER})
    ended = await hub.call(call.id)
    assert ended.result["content"][0]["text"] == f"accept {MARKER}"
    await hub.request(request.id, delivery="delivered")
    return ended


async def remembered(hub: RunningHub) -> int:
    """How many calls and requests the API still shows, and tells its watchers."""
    shown = [*await hub.client.calls.list(), *await hub.client.inbox.list()]
    return len(shown)


async def first_of_watch(hub: RunningHub, token: str) -> Any:
    watch = hub.client.inbox.watch(resume_token=token)
    with anyio.fail_after(LIMIT_S):
        event = await anext(watch)
    await watch.aclose()
    return event


async def test_a_prompt_whose_time_is_over_is_gone_from_the_api_and_from_every_file(
    start_hub: Any, asking: dict[str, Any]
) -> None:
    hub = await start_hub({"asking": asking}, connected=True)
    await confide(hub)
    assert traces(hub.data_dir)
    await hub.terminate()
    # The next hub keeps so little: what has been looked at in peace until now is too old.
    hub = await start_hub({"asking": {**asking, "call_history_age_s": AGE_S, "request_history_age_s": AGE_S}})
    with anyio.fail_after(LIMIT_S):
        while await remembered(hub) or traces(hub.data_dir):
            await anyio.sleep(POLL_S)
    await hub.terminate()
    assert not traces(hub.data_dir)


async def test_a_backup_put_in_place_is_a_hub_s_store_that_no_older_token_fits(
    start_shared_hub: Any, asking: dict[str, Any], tmp_path: Path
) -> None:
    hub = await start_shared_hub({"asking": asking}, connected=True)
    call = await confide(hub)
    file = tmp_path / "backup.db"
    backup = (await hub.hubbub("store", "backup", str(file))).record
    assert (backup["path"], backup["size_bytes"]) == (str(file), file.stat().st_size)
    assert {"hubbub.db.copy"}.isdisjoint(each.name for each in hub.data_dir.iterdir())
    later = await confide(hub)
    token = (await first_of_watch(hub, "")).resume_token
    revision = (await hub.client.store.stats()).revision

    place = Path(hub.data_dir).with_name("data-1")  # of the next hub
    place.mkdir(mode=0o700)
    file.rename(place / "hubbub.db")
    restored = await start_shared_hub({"asking": asking})
    assert restored.data_dir == place
    await restored.connected("asking")
    assert [each.id for each in await restored.client.calls.list()] == [call.id] != [later.id]
    while (await restored.client.store.stats()).revision <= revision:
        await restored.client.call_tool("asking", "cancelled_calls")
    event = await first_of_watch(restored, token)
    assert (event.type, event.reason) == ("reset", "OTHER_STORE")
