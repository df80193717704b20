"""The page at one member of a fleet has the questions of servers that other members own."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from playwright.async_api import expect

import hubbub_client

from ..e2e.conftest import LIMIT_S, POLL_S, child, environment
from ..e2e.crash import listening
from ..fleet.databases import databases
from ..fleet.members import NAMES, members
from ..ports import reserved
from .conftest import Person

KITCHEN = Path(__file__).parents[2] / "docs" / "demo" / "kitchen.py"
QUESTION = "What would you like for lunch?"
LEASE_TTL_S = 6.0
SHOTS = os.environ.get("HUBBUB_SHOTS")
"""A folder for pictures of the page, if somebody wants to see them."""


async def shown(person: Person, name: str) -> None:
    if SHOTS:
        await person.page.screenshot(path=Path(SHOTS) / f"{name}.png")


async def owner_of(hub: hubbub_client.Hub, server: str) -> str:
    with anyio.fail_after(LIMIT_S):
        while (found := (await hub.fleet.status()).owner(server)) is None:
            await anyio.sleep(POLL_S)
    return found


@pytest.mark.usefixtures("processes")
async def test_a_question_of_a_server_that_another_member_owns_is_answered_on_the_page(
    tmp_path: Path, start_bridge: Callable[..., Any], visit: Callable[..., Any]
) -> None:
    with databases() as both, reserved() as port:
        server = child([sys.executable, str(KITCHEN)], env=environment() | {"PORT": str(port)})
        kitchen = {"kitchen": {"url": f"http://127.0.0.1:{port}/mcp"}}
        async with server, members(tmp_path, both, kitchen, lease_ttl_s=LEASE_TTL_S) as fleet:
            await listening(port)
            async with hubbub_client.connect(fleet.address(), token=fleet.token) as hub:
                owner = await owner_of(hub, "kitchen")
                other = next(name for name in NAMES if name != owner)
                bridge = await start_bridge(SimpleNamespace(data_dir=fleet.all[other].directory / "data"))
                ada: Person = await visit(bridge.link, "Ada")
                call = await hub.start_tool("kitchen", "order_lunch", {})
                main = await ada.open(QUESTION)
                await shown(ada, f"question-of-{owner}-at-{other}")
                await main.get_by_label("Portions").fill("3")
                await main.get_by_role("button", name="Send answer").click()
                await expect(ada.page.locator("main")).to_contain_text("Ordered: 3 x curry")
                await shown(ada, f"answered-at-{other}")
                ended = await hub.calls.handle(call.id).wait()
                assert "Ordered: 3 x curry" in str(ended.result)
                (request,) = await hub.inbox.list(states=["answered"])
                assert (request.answered_by, await owner_of(hub, "kitchen")) == ("Ada", owner)
