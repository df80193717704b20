"""Capabilities of a call: what its caller can answer narrows what the hub declares for it."""

from typing import Any

import pytest

from hubbubd.upstream.protocol.negotiation import HandshakeRevision, StatelessRevision

KEY = "io.modelcontextprotocol/clientCapabilities"
HUB: dict[str, Any] = {
    "roots": {},
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "extensions": {"io.modelcontextprotocol/tasks": {}},
}


@pytest.mark.parametrize(
    ("caller", "declared"),
    [
        ({}, {}),
        ({"elicitation": {}}, {"elicitation": {"form": {}}}),
        ({"elicitation": {"url": {}}}, {"elicitation": {"url": {}}}),
        ({"sampling": {}, "roots": {"listChanged": True}}, {"sampling": {}, "roots": {}}),
        ({"sampling": {"tools": {}, "other": {}}}, {"sampling": {"tools": {}}}),
        ({"elicitation": 5, "sampling": None}, {"elicitation": {"form": {}}, "sampling": {}}),
        ({"tasks": {}, "experimental": {"x": {}}}, {}),
        (HUB, HUB),
        ("nonsense", HUB),
        (None, HUB),
    ],
)
def test_a_call_declares_at_most_what_the_hub_can_do_and_its_caller(caller: object, declared: dict[str, Any]) -> None:
    revision = StatelessRevision("2026-07-28", HUB)
    params, _ = revision.stamp("tools/call", {"name": "t", "_meta": {KEY: caller, "mine": 1}})
    assert params is not None
    assert (params["_meta"][KEY], params["_meta"]["mine"]) == (declared, 1)


def test_what_the_operator_has_turned_off_no_caller_turns_on() -> None:
    revision = StatelessRevision("2026-07-28", {"roots": {}})
    params, _ = revision.stamp("tools/call", {"name": "t", "_meta": {KEY: HUB}})
    assert params is not None
    assert params["_meta"][KEY] == {"roots": {}}


@pytest.mark.parametrize(
    ("meta", "sent"),
    [({KEY: HUB}, {"name": "t"}), ({KEY: HUB, "mine": 1}, {"name": "t", "_meta": {"mine": 1}})],
)
def test_where_a_handshake_has_said_it_a_call_does_not(meta: dict[str, Any], sent: dict[str, Any]) -> None:
    params, _ = HandshakeRevision("2025-11-25").stamp("tools/call", {"name": "t", "_meta": meta})
    assert params == sent
