"""What the log says of connections: failures are warnings with their reason, in words that somebody can act on."""

import ast
from pathlib import Path
from typing import Any

import anyio
import structlog.testing

from hubbubd.core.servers.connection_states import ConnectionEvent, ConnectionState
from hubbubd.errors import UpstreamError
from hubbubd.runtime.servers.connections.log import MESSAGES

from ..syntax import tree
from .conftest import World, server, until
from .peer import REFUSED, fault

HUB = Path(__file__).resolve().parents[2] / "hub/hubbubd"


async def told(world: World, **options: Any) -> list[Any]:
    """The log of a hub whose only server fails until it is given up."""
    with structlog.testing.capture_logs() as lines:
        async with world.hub(server(**options)) as hub:
            await until(lambda: hub.servers.get("one").connection.state is ConnectionState.DISCONNECTED)
    return [line for line in lines if "happened" in line]


async def test_a_failed_attempt_is_a_warning_with_its_reason_and_so_is_giving_up(world: World) -> None:
    world.peer.always = UpstreamError(REFUSED)
    first, failed, *_, last = await told(world, retries=1)
    assert (first["log_level"], first["event"]) == ("info", "server connecting")
    assert not first.keys() & {"code", "message"}
    assert (failed["log_level"], failed["event"]) == ("warning", "server connection failed")
    assert (failed["server"], failed["code"], failed["message"]) == ("one", REFUSED.code, REFUSED.message)
    assert failed["retry_in_s"] >= 0
    assert last["log_level"] == "warning"
    assert "hubbub servers connect" in last["event"]
    assert (last["code"], last["message"]) == (REFUSED.code, REFUSED.message)


async def test_a_process_that_has_ended_is_logged_with_what_it_said_last(world: World) -> None:
    ended = fault("CONNECTION_LOST", retryable=False, stderr=["Traceback:", "boom: no API_KEY"])
    world.peer.always = UpstreamError(ended)
    lines = await told(world, retries=0)
    assert [line["stderr"] for line in lines if "stderr" in line] == ["boom: no API_KEY"] * 2


async def test_a_disconnect_that_somebody_wanted_is_no_failure(world: World) -> None:
    with structlog.testing.capture_logs() as lines:
        async with world.hub(server()) as hub:
            await until(lambda: hub.servers.get("one").connection.state is ConnectionState.CONNECTED)
            await hub.servers.disconnect("one")
            await anyio.sleep(1)
    told = [line for line in lines if "happened" in line]
    assert {line["log_level"] for line in told} == {"info"}
    assert [line["happened"] for line in told] == ["connect", "handshake_complete", "disconnect", "cleanup_complete"]
    assert not any(line.keys() & {"code", "message"} for line in told)


def test_everything_that_can_happen_to_a_connection_has_words() -> None:
    assert MESSAGES.keys() == set(ConnectionEvent)


def bare_codes(tree: ast.AST) -> list[int]:
    """The lines that log a code without the message that explains it."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "log"
        and "code" in (names := {each.arg for each in node.keywords})
        and not names & {"message", "error"}
    ]


def test_no_line_of_the_log_has_a_code_without_its_message() -> None:
    found = {str(path): lines for path in HUB.rglob("*.py") if (lines := bare_codes(tree(path)))}
    assert found == {}
    assert bare_codes(ast.parse("log.info('failed', code=1)")) == [1]
