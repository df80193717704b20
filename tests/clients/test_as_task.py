"""Which ways to call a tool frontends offer: those that the hub would not refuse."""

from typing import Any

import pytest

from hubbub_client.data.records import Server
from hubbub_frontend.as_task import CallModes, call_modes

BOTH, TASK, PLAIN = (True, True), (False, True), (True, False)
DECLARED = {"tasks": {"requests": {"tools": {"call": {}}}}}
EXTENDED = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


def server(revision: str | None, capabilities: Any) -> Server:
    return Server(
        name="s",
        transport="stdio",
        state="connected",
        desired_state="connected",
        protocol_version=revision,
        server_info=None,
        capabilities=capabilities,
        error=None,
        attempt=0,
        next_retry_at=None,
        pid=None,
        queue=None,
    )


def tool(support: Any = None) -> dict[str, Any]:
    return {"name": "t", "execution": {"taskSupport": support}} if support else {"name": "t"}


@pytest.mark.parametrize(
    ("revision", "capabilities", "offered", "expected"),
    [
        ("2025-11-25", DECLARED, tool("optional"), BOTH),
        ("2025-11-25", DECLARED, tool("required"), TASK),
        ("2025-11-25", DECLARED, tool("forbidden"), PLAIN),
        ("2025-11-25", DECLARED, tool(), PLAIN),
        ("2025-11-25", DECLARED, {"name": "t", "execution": "soon"}, PLAIN),
        ("2025-11-25", {"tasks": {"requests": {}}}, tool("required"), PLAIN),
        ("2025-11-25", {}, tool("optional"), PLAIN),
        ("2025-06-18", None, tool("optional"), PLAIN),
        ("2025-11-25", ["tasks"], tool("optional"), PLAIN),
        ("2026-07-28", EXTENDED, tool(), BOTH),
        ("2026-07-28", EXTENDED, tool("forbidden"), BOTH),
        ("2026-07-28", DECLARED, tool("required"), PLAIN),
        (None, None, tool("required"), BOTH),
    ],
)
def test_a_tool_is_called_in_the_ways_that_its_server_and_it_declare(
    revision: str | None, capabilities: Any, offered: Any, expected: tuple[bool, bool]
) -> None:
    found = call_modes(server(revision, capabilities), offered)
    assert (found.plain, found.task) == expected
    assert bool(found.reason) == (expected != BOTH)


def test_of_a_server_that_is_not_known_nothing_is_said() -> None:
    assert call_modes(None, tool("required")) == CallModes()
