"""What is kept of what a host says of itself: what the hub reads, however much it was."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd import payload
from hubbubd.bounds import INTRODUCTION_BYTES
from hubbubd.core.access import Principal
from hubbubd.core.calls.capabilities import can_answer
from hubbubd.core.hosts.host_sessions import MAX_WATCHED, MAX_WATCHED_BYTES, HostSession, with_resource
from hubbubd.core.inbox.request_states import RequestKind
from hubbubd.downstream import QuestionPolicy
from hubbubd.downstream.hosts import introductions
from hubbubd.downstream.protocol.messages import RequestMessage

ADA = Principal(name="ada", grants=(), credential="ada")
FILL = INTRODUCTION_BYTES - 200
KEPT = 1024
"""Bytes of what is kept of a host, which docs/configuration.md names."""

VALUES = st.recursive(
    st.none() | st.booleans() | st.text(max_size=3),
    lambda inner: st.dictionaries(
        st.sampled_from(["form", "url", "tools", "context", "io.modelcontextprotocol/tasks", "x"]), inner, max_size=3
    ),
    max_leaves=8,
)
CAPABILITIES = st.dictionaries(
    st.sampled_from(["elicitation", "sampling", "roots", "extensions", "tasks", "x"]), VALUES, max_size=6
)


@given(CAPABILITIES)
def test_a_host_is_asked_the_same_by_what_is_kept_of_its_capabilities(said: dict[str, Any]) -> None:
    _, kept = introductions.select_known_parts({}, said)
    asked: tuple[dict[str, Any], ...] = ({}, {"tools": []})
    for params in asked:
        for kind in RequestKind:
            assert can_answer(kept, kind, params) == can_answer(said, kind, params)
    for policy in (
        QuestionPolicy(),
        QuestionPolicy(form="host"),
        QuestionPolicy(form="host", url="host", sampling="host", roots="host"),
    ):
        ours, theirs = policy.call_capabilities(kept), policy.call_capabilities(said)
        assert ours.keys() == theirs.keys()
        assert ours.get("extensions", {}).keys() == theirs.get("extensions", {}).keys()


SAYS_MUCH: list[dict[str, Any]] = [
    {"x": FILL * "x"},
    {"name": FILL * "x", "version": []},
    {"elicitation": {FILL * "x": {}}},
    {"sampling": {"tools": (FILL // 3) * [[]]}},
    {"extensions": {str(each): {} for each in range(FILL // 20)}},
]


@pytest.mark.parametrize("much", SAYS_MUCH)
def test_little_is_kept_of_a_host_that_says_much_of_itself(much: dict[str, Any]) -> None:
    request = RequestMessage(
        1, "initialize", {"protocolVersion": "2025-11-25", "clientInfo": much, "capabilities": much}
    )
    host = introductions.parse_handshake_host(request, ADA, "http")
    assert len(payload.dumps(host.info)) + len(payload.dumps(host.capabilities)) < KEPT


def test_the_resources_that_a_session_watches_have_a_bound_in_number_and_in_bytes() -> None:
    def watched(uris: list[str]) -> int:
        session: HostSession | None = HostSession(
            id="",
            principal="",
            credential="",
            endpoint="",
            revision="",
            info=b"",
            capabilities=b"",
            begun_at=0,
            used_at=0,
        )
        for uri in uris:
            session = with_resource(uri, session)
        return len(session.resources)

    assert watched([f"file:///{number}" for number in range(2 * MAX_WATCHED)]) == MAX_WATCHED
    assert watched([f"{number:08}" * 1024 for number in range(5)]) == MAX_WATCHED_BYTES // 8192
    assert watched([f"{number:08}{8184 * 'é'}" for number in range(5)]) == 1
