"""Mistakes of a program are refused before they are sent, and errors keep what they say."""

import pickle
from typing import Any

import pytest
from grpc import StatusCode, aio

from hubbub.v1 import server_pb2
from hubbub_client import Grant, RevisionConflict, ServerSpec, connect, errors
from hubbub_client.data import specs
from hubbub_client.errors import Aborted, ConnectionLost, HubbubError


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"url": "https://x.test/", "transport": "SSE"}, "transport: 'SSE' is not one of stdio, http, sse"),
        ({"command": "x", "transport": "pipe"}, "transport: 'pipe' is not one of stdio, http, sse"),
        ({"url": "https://x.test/", "transport": "stdio"}, "url is not an option of a stdio server"),
        ({"command": "x", "transport": "http"}, "command is not an option of a server over HTTP"),
        ({"command": "x", "url": "https://x.test/"}, "command is not an option of a server over HTTP"),
        ({"url": "https://x.test/", "cwd": "/"}, "cwd is not an option of a server over HTTP"),
        ({"command": "x", "headers": {"A": "b"}}, "headers is not an option of a stdio server"),
        ({"command": "x", "args": "a b"}, "args: must be a list"),
        ({"command": "x", "call_timeout_s": float("nan")}, "call_timeout_s: nan is not a valid number of seconds"),
        ({"command": "x", "roots": "none"}, "roots: must be `ask`, or a list of MCP roots"),
    ],
)
def test_a_spec_that_no_server_can_have_is_refused_by_the_option(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        specs.to_message(ServerSpec(name="s", **wrong))
    assert str(caught.value) == words


@pytest.mark.parametrize("ttl_s", [0, 0.0, 1e-9, -1])
async def test_a_token_that_would_be_over_at_once_is_not_made_for_ever(hub: Any, ttl_s: float) -> None:
    async with connect(data_dir=hub.data_dir) as client:
        with pytest.raises(ValueError, match="ttl_s"):
            await client.tokens.create("t", [Grant(role="viewer")], ttl_s=ttl_s)
    assert hub.seen == []


def conflict() -> HubbubError:
    """A conflict as the library raises it."""
    spec = server_pb2.ServerSpec(name="s", http=server_pb2.HttpEndpoint(url="https://x.test/"))
    refusal = Aborted("s was changed", reason="REVISION_CONFLICT", metadata={"server": "s"})
    refusal.conflict = server_pb2.RevisionConflict(revision=7, spec=spec).SerializeToString()
    with pytest.raises(RevisionConflict) as caught, specs.raise_conflicts():
        raise refusal
    return caught.value


def refused(kind: type[HubbubError]) -> HubbubError:
    return kind("no", reason="R", metadata={"a": "b"}, violations=(("x", "y"),), retry_after_s=2, help_url="u")


@pytest.mark.parametrize(
    "error", [conflict(), *map(refused, HubbubError.__subclasses__())], ids=lambda error: type(error).__name__
)
def test_an_error_crosses_to_another_process_as_it_is(error: HubbubError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_a_conflict_has_what_is_there_now() -> None:
    error = conflict()
    assert isinstance(error, RevisionConflict)
    assert error.spec is not None
    assert (error.revision, error.spec.url, error.roots) == (7, "https://x.test/", None)
    assert (error.reason, error.metadata, error.message) == ("REVISION_CONFLICT", {"server": "s"}, "s was changed")


BROKEN = [
    (StatusCode.UNAVAILABLE, "Socket closed"),
    (StatusCode.INTERNAL, "Internal error from Core"),  # where it breaks while a message is written
]


@pytest.mark.parametrize(("code", "details"), BROKEN)
def test_a_connection_that_breaks_is_said_to_be_that_of_the_hub(code: StatusCode, details: str) -> None:
    failure = aio.AioRpcError(code, aio.Metadata(), aio.Metadata(), details=details)
    error = errors.from_rpc(failure)
    assert isinstance(error, ConnectionLost)
    assert (error.sent, error.reason) == (True, "UNAVAILABLE")
    assert error.message == f"the connection to the hub was lost ({details})"
