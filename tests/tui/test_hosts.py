"""The pane of hosts: who is connected, what each waits for, and who may not see it."""

from collections.abc import Iterator
from typing import Any

import pytest

import hubbub_client
from hubbub_client.services.tokens import Grant
from hubbub_frontend import shell_commands
from hubbub_tui.app import HubbubApp

from ..e2e import hosts
from .conftest import Person, RunningHub, at_terminal, peer

SCHEMA = {"type": "object", "properties": {}}
LUNCH = {"method": "elicitation/create", "params": {"message": "Lunch?", "requestedSchema": SCHEMA}}


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any) -> RunningHub:
    """A hub with a server that asks, and an endpoint for hosts."""
    server = {**peer("dictated_server.py"), "max_in_flight": 20}
    return await start_shared_hub({"dictated": server}, hub={"mcp_listen": "127.0.0.1:0"}, connected=True)


@pytest.fixture
def told_of_its_hub() -> Iterator[None]:
    """The program was started with the data directory of its hub."""
    shell_commands.set_hub_prefix("hubbub --data-dir /mine")
    yield
    shell_commands.set_hub_prefix("hubbub")


@pytest.mark.usefixtures("told_of_its_hub")
async def test_a_host_comes_with_what_it_waits_for_and_goes(hub: RunningHub) -> None:
    async with at_terminal(hub, size=(130, 32)) as ann:
        await ann.press("7")
        await ann.sees("No host is connected", "claude mcp add hubbub -- hubbub --data-dir /mine mcp")
        async with hosts.waiting(hub, "", "claude-code", "dictated__ask", questions=[LUNCH]):
            await hub.asked()
            await ann.sees("1 host · 1 waiting for an answer", "claude-code 1.2", "profile default", "  Lunch?")
            await ann.press("g")
            await ann.sees("host          claude-code 1.2")
            await ann.press("1")
            await ann.sees("Lunch?", "g Its call")
            await ann.press("enter")
            await ann.sees("Leave open")
            await ann.press("escape", "7", "a")
            await ann.sees("Leave open")
            await ann.press("escape")
        await ann.sees("No host is connected")


async def test_a_hub_that_shows_no_hosts_to_somebody_is_put_in_words(hub: RunningHub) -> None:
    made = await hub.client.tokens.create("some", [Grant(role="responder", servers=("dictated",))])
    async with hubbub_client.connect(data_dir=hub.data_dir, token=made.secret) as client:
        app = HubbubApp(client)
        async with app.run_test(size=(80, 24)) as pilot:
            some = Person(app, pilot)
            await some.press("7")
            await some.sees("You may not see who is connected")
