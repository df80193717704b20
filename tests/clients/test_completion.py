"""What a shell is offered, and the RPC without gRPC that asks a hub for it."""

import contextlib
import io
import socket
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import grpc
import pytest

from hubbub.v1 import catalog_pb2, server_pb2
from hubbub_cli import outcome
from hubbub_cli.plain_rpc import ask

from .test_shells import TYPED
from .world import furnish

LIST = "hubbub.v1.ServerService/ListServers"
LIMIT_S = 60


@pytest.fixture
def offered(hub: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Completes the words of a command line as the script for bash does."""
    monkeypatch.setenv("HUBBUB_DATA_DIR", str(hub.data_dir))

    async def complete(typed: str) -> list[str]:
        monkeypatch.setenv("_HUBBUB_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
        out, err = io.StringIO(), io.StringIO()

        def command() -> None:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.suppress(SystemExit):
                outcome([])

        with anyio.fail_after(LIMIT_S):
            await anyio.to_thread.run_sync(command)
        assert err.getvalue() == ""
        return out.getvalue().split()

    return complete


async def asked(target: str, token: str, request: bytes = b"", limit_s: float = LIMIT_S) -> Any:
    response = await anyio.to_thread.run_sync(ask, target, LIST, token, request, limit_s)
    return server_pb2.ListServersResponse.FromString(response)


@pytest.mark.parametrize(("typed", "fits"), TYPED)
async def test_words_are_completed(hub: Any, refusal: Any, offered: Any, typed: str, fits: set[str]) -> None:
    furnish(hub, refusal)
    assert {*await offered(typed)} == fits


async def test_only_open_requests_are_offered_and_for_open_only_those_with_a_page(
    hub: Any, refusal: Any, offered: Any
) -> None:
    furnish(hub, refusal)
    await offered("hubbub inbox show req")
    await offered("hubbub open req")
    first, second = (request.filter for request in hub.requests("ListPendingRequests"))
    assert (list(first.states), list(first.kinds), list(second.states), list(second.kinds)) == ([1], [], [1], [2])


async def test_tools_of_all_pages_of_the_named_server_are_offered(hub: Any, offered: Any) -> None:
    def page(asked: Any) -> Any:
        assert (asked.filter.server, list(asked.filter.kinds)) == ("time", [1])
        number = int(asked.page_token or 0)
        entry = catalog_pb2.CatalogEntry(kind=1, object=b'{"name":"tool_%d"}' % number)
        token = str(number + 1) if number < 2 else ""
        return catalog_pb2.ListCatalogEntriesResponse(entries=[entry], next_page_token=token)

    hub.replies["ListCatalogEntries"] = page
    assert await offered("hubbub call time to") == ["tool_0", "tool_1", "tool_2"]


async def test_a_name_that_means_something_to_a_shell_is_not_offered(hub: Any, offered: Any) -> None:
    names = ["fine", "fi$(reboot)", "fi`x`", "fi;x", "fi x", "fi\nx"]
    servers = [server_pb2.Server(name=name) for name in names]
    hub.replies["ListServers"] = lambda _: server_pb2.ListServersResponse(servers=servers)
    assert await offered("hubbub queue fi") == ["fine"]


async def test_a_hub_that_refuses_answers_wrongly_or_is_gone_is_no_trouble(
    hub: Any, refusal: Any, offered: Any
) -> None:
    def refuse(_: Any) -> Any:
        raise refusal("PERMISSION_DENIED", "PERMISSION_DENIED", "you may not")

    hub.replies["ListServers"] = refuse
    assert await offered("hubbub queue t") == []
    odd = catalog_pb2.CatalogEntry(kind=1, object=b"[")
    hub.replies["ListCatalogEntries"] = lambda _: catalog_pb2.ListCatalogEntriesResponse(entries=[odd])
    assert await offered("hubbub call time t") == []
    await hub.stop()
    assert await offered("hubbub queue t") == []
    (hub.data_dir / "client.json").unlink()
    assert await offered("hubbub queue t") == []


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 254, 255, 256, 5000])
async def test_a_token_of_any_length_reaches_the_hub_as_it_is(hub: Any, length: int) -> None:
    hub.token = "t" * length
    hub.replies["ListServers"] = lambda _: server_pb2.ListServersResponse(next_page_token="here")
    if length:
        assert (await asked(hub.address, hub.token)).next_page_token == "here"
    else:
        with pytest.raises(ConnectionError, match="no message"):
            await asked(hub.address, "")


@pytest.mark.parametrize("size", [0, 100, 1_000_000, 3_000_000])
async def test_a_request_and_a_response_of_any_size_are_carried_whole(hub: Any, size: int) -> None:
    text = "x" * size
    hub.replies["ListServers"] = lambda asked: server_pb2.ListServersResponse(next_page_token=text + asked.page_token)
    request = server_pb2.ListServersRequest(page_token="y" * min(size, 1000))
    response = await asked(hub.address, hub.token, request.SerializeToString())
    assert response.next_page_token == text + request.page_token


async def test_a_hub_at_a_socket_is_asked_there(tmp_path: Path) -> None:
    async def serve(request: bytes, _: Any) -> bytes:
        return request + b"!"

    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(serve)
    service = grpc.method_handlers_generic_handler(LIST.partition("/")[0], {"ListServers": handler})
    server.add_generic_rpc_handlers([service])
    server.add_insecure_port(f"unix:{tmp_path}/s")
    await server.start()
    try:
        assert await anyio.to_thread.run_sync(ask, f"unix:{tmp_path}/s", LIST, None, b"hi", LIMIT_S) == b"hi!"
        with pytest.raises(OSError, match="No such file"):
            await anyio.to_thread.run_sync(ask, f"unix:{tmp_path}/other", LIST, None, b"", LIMIT_S)
    finally:
        await server.stop(0)


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\x05\0\x01\0\0\0\x01\0\0\0\0\x01", bytes(range(64))],
    ids=["nothing", "HTTP/1.1", "less than it says", "bytes"],
)
async def test_what_speaks_otherwise_is_an_error(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, answer)
            with pytest.raises(ConnectionError, match="no message"):
                await asked(f"127.0.0.1:{listening.getsockname()[1]}", "t")


async def test_who_listens_and_says_nothing_is_not_waited_for_longer_than_was_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.raises(TimeoutError):
        await asked(f"127.0.0.1:{listening.getsockname()[1]}", "t", limit_s=0.01)
