"""Options of a server that change while the hub runs: by a file that is read again, and over the API."""

from pathlib import Path
from typing import Any, Literal

import pytest

from hubbubd.config import HubSettings, ServerConfig
from hubbubd.config.servers.server import OPTIONS
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import RequestState
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.errors import UpstreamError
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era

from .conftest import ANY_PEER, FORM, World, question, server, settle, spec, until, update
from .peer import REFUSED, Outcome, Sent
from .task_server import RESULT, TaskServer, ended, started

CONNECTION = {key for key, option in OPTIONS.items() if option.reconnects}
HUB_SIDE = OPTIONS.keys() - CONNECTION

OTHER: dict[str, Any] = {
    "allow_tools": ("t*", "o*"),
    "deny_tools": ("x*",),
    "retryable_errors": ("CONNECTION_LOST",),
    "backoff_s": (3,),
    "retries": 5,
    "max_in_flight": 2,
    "roots": ({"uri": "file:///srv"},),
    "env": {"A": "b"},
    "cwd": "/",
    "protocol": "2025-11-25",
    "confirm": ("writes",),
}
"""Another value of each option for which `another_value` has none that is allowed."""

ELSEWHERE = {"name", "transport", "command", "args", "url", "headers", "oauth", "ca", "cookies"}
"""Options that make it another server, or that a stdio server does not have."""

SETTINGS = HubSettings(data_dir=Path("unused"), allow_commands=(ANY_PEER,))
ASKING = {"resultType": "input_required", "inputRequests": {"a": {"method": "elicitation/create", "params": FORM}}}
Way = Literal["file", "api"]
WAYS = pytest.mark.parametrize("way", ["file", "api"])


def another_value(value: object) -> object:
    """A number is halved, since the API bounds it from above."""
    match value:
        case None:
            return 7200.0
        case bool():
            return not value
        case str():
            return f"another {value}"
        case int() | float():
            return type(value)(value / 2)
        case _:
            raise AssertionError(f"OTHER needs another value than {value!r}")


def changed(before: ServerConfig, option: str) -> ServerConfig:
    """The configuration with another value of one option."""
    value = getattr(before, option)
    other = OTHER[option] if option in OTHER else another_value(value)
    after = ServerConfig.model_validate({**before.model_dump(), option: other})
    assert getattr(after, option) != value
    return after


async def begin(hub: Hub, way: Way, config: ServerConfig) -> None:
    if way == "api":
        await hub.servers.add(config)
    await settle()


async def change(hub: Hub, way: Way, config: ServerConfig) -> None:
    if way == "api":
        await update(hub, config)
    else:
        await hub.servers.adopt({config.name: config}, SETTINGS)
    await settle(5)


def files(way: Way, config: ServerConfig) -> list[ServerConfig]:
    return [config] if way == "file" else []


@WAYS
@pytest.mark.parametrize("option", sorted(HUB_SIDE))
async def test_an_option_of_the_hubs_side_leaves_connection_calls_and_questions_alone(
    world: World, option: str, way: Way
) -> None:
    async def asks(sent: Sent) -> Outcome:
        await sent.ask("elicitation/create", FORM, on_wire=True).answered()
        return {"content": []}

    world.peer.behaviour = asks
    config = server()
    async with world.hub(*files(way, config)) as hub:
        await begin(hub, way, config)
        call = await hub.calls.start(spec(), "me")
        request = await question(hub)
        await change(hub, way, changed(config, option))
        assert len(world.peer.attempts) == 1
        assert hub.servers.get("one").config == changed(config, option)
        assert hub.inbox.get(request.id).state is RequestState.OPEN
        await hub.inbox.answer(request.id, Accept({"name": "x"}), "me", answer_id=None, claim_id=None)
        await until(lambda: hub.calls.get(call.id).state is CallState.COMPLETED)


@pytest.mark.parametrize(
    ("option", "way"),
    [
        (option, way)
        for option in sorted(CONNECTION - ELSEWHERE)
        for way in ("file", "api")
        if way == "file" or option not in ("cwd", "env")  # which this hub allows nobody over the API
    ],
)
async def test_what_survives_a_restart_survives_a_new_connection_to_the_same_server(
    world: World, option: str, way: Way
) -> None:
    world.peer.era = Era.STATELESS

    async def asks(sent: Sent) -> Outcome:
        return {"content": []} if "inputResponses" in sent.params else {**ASKING, "requestState": "s"}

    world.peer.behaviour = asks
    config = server()
    async with world.hub(*files(way, config)) as hub:
        await begin(hub, way, config)
        call = await hub.calls.start(spec(), "me")
        request = await question(hub)
        await change(hub, way, changed(config, option))
        assert len(world.peer.attempts) == 2
        assert hub.inbox.get(request.id).state is RequestState.OPEN
        await hub.inbox.answer(request.id, Accept({"name": "x"}), "me", answer_id=None, claim_id=None)
        await until(lambda: hub.calls.get(call.id).state is CallState.COMPLETED)


@WAYS
async def test_a_task_of_the_server_is_followed_over_the_new_connection(world: World, way: Way) -> None:
    tasks = TaskServer(world)
    config = server()
    async with world.hub(*files(way, config)) as hub:
        await begin(hub, way, config)
        call = await started(hub)
        await change(hub, way, changed(config, "sampling"))
        tasks.end(result=RESULT)
        assert (await ended(hub, call)).state is CallState.COMPLETED
        assert len(world.peer.links) == 2


@WAYS
@pytest.mark.parametrize(
    "options",
    [{"call_timeout_s": 7}, {"protocol": "2025-11-25"}, {"args": ("-v",)}],
    ids=["option", "connection", "server"],
)
async def test_a_server_that_was_disconnected_stays_so_when_it_is_changed(
    world: World, options: dict[str, Any], way: Way
) -> None:
    config = server()
    async with world.hub(*files(way, config)) as hub:
        await begin(hub, way, config)
        await hub.servers.disconnect("one")
        await change(hub, way, server(**options))
        now = hub.servers.get("one")
        assert (now.wanted, now.connection.state, len(world.peer.attempts)) == (False, ConnectionState.DISCONNECTED, 1)


@WAYS
async def test_a_server_that_cannot_be_reached_is_tried_at_once_when_it_is_changed(world: World, way: Way) -> None:
    world.peer.always = UpstreamError(REFUSED)
    config = server(backoff_s=(1000,), backoff_max_s=1000)
    async with world.hub(*files(way, config)) as hub:
        await begin(hub, way, config)
        assert (hub.servers.get("one").connection.state, len(world.peer.attempts)) == (ConnectionState.ERROR, 1)
        await change(hub, way, server(backoff_s=(1000,), backoff_max_s=1000, call_timeout_s=7))
        assert len(world.peer.attempts) == 2
