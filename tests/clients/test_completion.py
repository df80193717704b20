"""What a shell is offered."""

import contextlib
import io
from typing import Any

import anyio
import anyio.to_thread
import pytest

from hubbub.v1 import catalog_pb2, server_pb2
from hubbub_cli import run_command_line

from .test_shells import TYPED
from .world import furnish

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
                run_command_line([])

        with anyio.fail_after(LIMIT_S):
            await anyio.to_thread.run_sync(command)
        assert err.getvalue() == ""
        return out.getvalue().split()

    return complete


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
