"""How a link over stdio ends, and what its user sees of it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbubd.config import ServerConfig
from hubbubd.errors import Category, UpstreamError
from hubbubd.upstream.connector import McpConnector
from hubbubd.upstream.ports import McpLink

from ..raising import raising
from .conftest import LIMIT_S, Connect, Pocket, Recorder, open_once

Stdio = Callable[..., dict[str, Any]]


async def test_a_server_that_dies_in_a_call_says_how_with_the_fault(stdio: Stdio, connect: Connect) -> None:
    async with connect(**stdio("bad.py", "die_mid_call")) as link:
        with pytest.raises(UpstreamError) as caught:
            await link.request("tools/call", {"name": "echo", "arguments": {}})
        lost = await link.wait_lost()
        for fault in (caught.value.fault, lost):
            assert (fault.code, fault.category, fault.retryable) == ("CONNECTION_LOST", Category.CONNECTION, True)
            assert fault.details["exit_code"] == 4
            assert fault.details["stderr"]
        with pytest.raises(UpstreamError):
            await link.request("ping", None)
        await link.notify("notifications/roots/list_changed", None)


async def test_a_server_that_never_answers_runs_into_the_timeout(stdio: Stdio, connect: Connect) -> None:
    with raising(UpstreamError, "CONNECTION_TIMEOUT") as caught:
        await open_once(connect(**stdio("bad.py", "hang"), connect_timeout_s=0.6))
    assert caught.value.fault.details["elapsed_s"] == 0.6
    assert "hint" not in caught.value.fault.details


@pytest.mark.usefixtures("processes")
async def test_a_slow_first_start_of_a_downloader_is_hinted_at(
    tmp_path: Path, connect: Connect, recorder: Recorder
) -> None:
    command = tmp_path / "uvx"
    command.write_text("#!/bin/sh\necho Downloading >&2\nexec sleep 60\n")
    command.chmod(0o755)
    with pytest.raises(UpstreamError) as caught:
        await open_once(connect(command=str(command), connect_timeout_s=5))
    fault = caught.value.fault
    assert fault.code == "CONNECTION_TIMEOUT"
    assert "download" in fault.details["hint"]
    assert fault.details["stderr"] == ["Downloading"]


@pytest.mark.usefixtures("processes")
async def test_the_start_after_one_that_had_to_download_has_more_time(
    tmp_path: Path, recorder: Recorder, peer_scripts: Path
) -> None:
    command = tmp_path / "uvx"
    # The first start ends while it downloads; the second is slower than `connect_timeout_s`, too.
    command.write_text(f"#!/bin/sh\nsleep 2\nexec {sys.executable} {peer_scripts / 'plain_server.py'}\n")
    command.chmod(0o755)
    config = ServerConfig.model_validate({"name": "peer", "command": str(command), "connect_timeout_s": 0.5})
    connector = McpConnector(Pocket())
    with pytest.raises(UpstreamError) as caught:
        async with connector.open(config, recorder, None, None):
            pass
    assert "the next start may take 300 s" in caught.value.fault.message
    async with connector.open(config, recorder, None, None) as link:
        assert link.hello.server_info


@pytest.mark.usefixtures("processes")
async def test_variables_for_all_servers_reach_a_process_that_has_none_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recorder: Recorder
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:8080")
    monkeypatch.setenv("NO_PROXY", "of-the-hub")
    seen = tmp_path / "seen"
    script = f"import os; open({str(seen)!r}, 'w').write(os.environ['HTTPS_PROXY'] + ' ' + os.environ['NO_PROXY'])"
    connector = McpConnector(Pocket())
    connector.variables = ("HTTPS_PROXY", "NO_PROXY", "NOT_SET")
    options = {"command": sys.executable, "args": ("-c", script), "env": {"NO_PROXY": "its-own"}}
    with pytest.raises(UpstreamError):
        async with connector.open(ServerConfig.model_validate({"name": "peer", **options}), recorder, None, None):
            pass
    assert seen.read_text() == "http://proxy.example:8080 its-own"


async def test_cancelling_the_user_of_a_link_closes_it_and_ends_the_process(stdio: Stdio, recorder: Recorder) -> None:
    config = ServerConfig.model_validate({"name": "peer", **stdio("bad.py", "silent")})
    links: list[McpLink] = []
    opened = anyio.Event()

    async def use() -> None:
        async with McpConnector(Pocket()).open(config, recorder, None, None) as link:
            links.append(link)
            opened.set()
            await link.request("tools/call", {"name": "echo", "arguments": {}})

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(use)
            await opened.wait()
            tasks.cancel_scope.cancel()
    pid = links[0].hello.pid
    assert pid is not None
    assert not Path(f"/proc/{pid}").exists()


async def test_a_hundred_links_opened_in_one_task_group_fail_alone(
    stdio: Stdio, recorder: Recorder, free_port: int
) -> None:
    refused = ServerConfig.model_validate({"name": "away", "url": f"http://127.0.0.1:{free_port}/mcp"})
    good = ServerConfig.model_validate({"name": "good", **stdio("bad.py", "good")})
    failures: list[str] = []

    async def use() -> None:
        try:
            async with McpConnector(Pocket()).open(refused, recorder, None, None):
                pass
        except UpstreamError as exc:
            failures.append(exc.reason)

    with anyio.fail_after(LIMIT_S):
        async with McpConnector(Pocket()).open(good, recorder, None, None) as link, anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(use)
            await link.probe()
    assert failures == ["CONNECTION_REFUSED"] * 100


async def test_a_published_server_of_the_first_sdk_generation_connects(mcp1_python: str, connect: Connect) -> None:
    async with connect(command=mcp1_python, args=("-m", "mcp_server_time")) as link:
        assert link.hello.protocol_version == "2025-11-25"
        arguments = {"timezone": "Europe/Berlin"}
        result = await link.request("tools/call", {"name": "get_current_time", "arguments": arguments})
        assert "Berlin" in result["content"][0]["text"]
