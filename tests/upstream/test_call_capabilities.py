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
    params, _ = revision.fit_params("tools/call", {"name": "t", "_meta": {KEY: caller, "mine": 1}})
    assert (params["_meta"][KEY], params["_meta"]["mine"]) == (declared, 1)


def test_what_the_operator_has_turned_off_no_caller_turns_on() -> None:
    revision = StatelessRevision("2026-07-28", {"roots": {}})
    params, _ = revision.fit_params("tools/call", {"name": "t", "_meta": {KEY: HUB}})
    assert params["_meta"][KEY] == {"roots": {}}


UI = "io.modelcontextprotocol/ui"
APPS = {**HUB, "extensions": {**HUB["extensions"], UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}}
OWN = {"mimeTypes": ["text/html;profile=mcp-app", "text/x"]}
"""What a host says of itself."""


@pytest.mark.parametrize(
    ("method", "caller", "entry"),
    [
        ("tools/list", None, APPS["extensions"][UI]),
        *((f"{each}/list", None, APPS["extensions"][UI]) for each in ("prompts", "resources", "skills")),
        ("resources/templates/list", None, APPS["extensions"][UI]),
        ("server/discover", None, APPS["extensions"][UI]),
        ("subscriptions/listen", None, APPS["extensions"][UI]),
        ("tools/call", None, None),
        ("resources/read", None, None),
        ("tools/call", HUB, None),
        ("tools/call", {"extensions": {UI: OWN}}, OWN),
        ("tools/call", {"extensions": {UI: 5}}, {}),
        ("resources/read", {**HUB, "extensions": {UI: OWN}}, OWN),
    ],
)
def test_a_call_says_of_pages_what_its_host_says_and_the_hubs_own_lists_what_any_host_may(
    method: str, caller: object, entry: object
) -> None:
    meta = {} if caller is None else {KEY: caller}
    params, _ = StatelessRevision("2026-07-28", APPS).fit_params(method, {"name": "t", "_meta": meta})
    assert params["_meta"][KEY].get("extensions", {}).get(UI) == entry


@pytest.mark.parametrize(
    ("meta", "sent"),
    [({KEY: HUB}, {"name": "t"}), ({KEY: HUB, "mine": 1}, {"name": "t", "_meta": {"mine": 1}})],
)
def test_where_a_handshake_has_said_it_a_call_does_not(meta: dict[str, Any], sent: dict[str, Any]) -> None:
    params, _ = HandshakeRevision("2025-11-25").fit_params("tools/call", {"name": "t", "_meta": meta})
    assert params == sent
