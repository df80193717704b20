"""A server that wants the hub to be let in by a person, and that person at a terminal."""

import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from ..upstream.conftest import served
from ..upstream.guarded import Guarded, visit
from .terminals import terminal

BROWSER = """\
import sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
opener.open(sys.argv[1], timeout=30).read()
"""


@pytest.fixture
async def guarded() -> AsyncIterator[Guarded]:
    """A `Guarded` server that listens."""
    server = Guarded()
    async with served(Starlette(routes=server.routes())) as server.origin:
        yield server


@pytest.fixture
async def hub(start_hub: Any, guarded: Guarded) -> Any:
    return await start_hub({"guarded": {"url": guarded.url}})


async def test_who_opens_the_page_here_lets_the_hub_in_and_needs_to_do_no_more(hub: Any, tmp_path: Path) -> None:
    (asked,) = await hub.asked()
    (tmp_path / "browser.py").write_text(BROWSER)
    browser = shlex.join([sys.executable, str(tmp_path / "browser.py"), "%s"])
    async with terminal(hub, "open", asked.id, BROWSER=browser) as person:
        await person.sees("what is typed there can be read on its way")
        await person.answers("[l]ater? ", "o")
        await person.sees("waiting for the browser")
        assert await person.ends() == 0
    assert (await hub.client.inbox.get(asked.id)).state == "answered"
    await hub.connected("guarded")


async def test_who_opens_the_page_elsewhere_pastes_where_the_browser_ended(hub: Any) -> None:
    (asked,) = await hub.asked()
    page = (await hub.hubbub("open", asked.id, "--print-only")).record["url"]
    ended = (await visit(page, follow=False)).headers["location"]
    async with terminal(hub, "open", asked.id) as person:
        await person.answers("[l]ater? ", "p")
        await person.answers("where the browser ended: ", "http://127.0.0.1/elsewhere")
        await person.sees("redirect_url")
        await person.answers("[l]ater? ", "p")
        await person.answers("where the browser ended: ", ended)
        assert await person.ends() == 0
    assert (await hub.client.inbox.get(asked.id)).answered_by == "ann"
    await hub.connected("guarded")


async def test_a_script_pastes_it_by_an_option(hub: Any) -> None:
    (asked,) = await hub.asked()
    page = (await hub.hubbub("open", asked.id, "--print-only")).record["url"]
    ended = (await visit(page, follow=False)).headers["location"]
    answered = await hub.answer(asked, "--accept", f'{{"redirect_url": "{ended}"}}')
    assert answered["state"] == "answered"
    await hub.connected("guarded")


async def test_who_declines_leaves_the_hub_out(hub: Any) -> None:
    (asked,) = await hub.asked()
    async with terminal(hub, "open", asked.id) as person:
        await person.answers("[l]ater? ", "d")
        assert await person.ends() == 0
    watch = hub.client.servers.watch(["guarded"])
    (server,) = await hub.watched(watch, lambda each: each.error is not None)
    assert server.error.code == "AUTHENTICATION_FAILED"
