"""nginx, with its default buffering, in front of a server, of the hub's endpoint and of the page."""

import json
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from hubbubd.rpc.mcp.transport import KEEPALIVE_S

from ..e2e.conftest import child
from ..ports import reserved
from .conftest import LIMIT_S, start_bridge, start_hub

__all__ = ["start_bridge", "start_hub"]

CONF = """
daemon off;
master_process off;
pid {directory}/pid;
error_log {directory}/error.log;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  proxy_read_timeout {read_s:g}s;
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass {back}; }}
  }}
}}
"""
READ_S = KEEPALIVE_S + 4
"""For so long nothing may come; 60 s by default, so this is the stricter one."""


@pytest.fixture
async def nginx(tmp_path: Path, processes: None) -> AsyncIterator[Callable[..., Any]]:
    """Puts nginx before an origin: `front = await nginx(back)`."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    if program is None:
        pytest.skip("nginx is not installed: run `make deploy-tools` as root, or install it")
    async with AsyncExitStack() as stack:

        async def start(back: str) -> str:
            port = stack.enter_context(reserved())
            conf = tmp_path / f"nginx-{port}.conf"
            conf.write_text(CONF.format(directory=tmp_path, port=port, back=back, read_s=READ_S))
            await stack.enter_async_context(child([program, "-p", str(tmp_path), "-c", str(conf)]))
            with anyio.fail_after(LIMIT_S):
                while True:
                    try:
                        async with await anyio.connect_tcp("127.0.0.1", port):
                            return f"http://127.0.0.1:{port}"
                    except OSError:
                        await anyio.sleep(0.05)

        yield start


def asking(peers: Path) -> list[str]:
    """The command of a server that asks."""
    return [sys.executable, str(peers / "asking_server.py")]


async def test_calls_and_questions_of_a_server_pass_through_nginx(
    nginx: Callable[..., Any], http_peer: Callable[..., Any], start_hub: Callable[..., Any], peer_scripts: Path
) -> None:
    peer = http_peer([*asking(peer_scripts), "http"])
    front = await nginx(f"http://127.0.0.1:{peer.port}")
    hub = await start_hub({"asking": {"url": f"{front}/mcp", "protocol": "2025-11-25"}})
    await hub.connected("asking")
    call = await hub.client.start_tool("asking", "ask", {})
    (asked,) = await hub.asked()
    await hub.client.inbox.answer(asked.id, accept={"name": "Ada"})
    with anyio.fail_after(LIMIT_S):
        assert "accept Ada" in str(await call.result())


async def test_a_long_call_of_a_host_and_its_stream_pass_through_nginx(
    nginx: Callable[..., Any], start_hub: Callable[..., Any], peer_scripts: Path
) -> None:
    command, *args = asking(peer_scripts)
    server = {"command": command, "args": [*args, "stdio"], "protocol": "2025-11-25"}
    hub = await start_hub({"asking": server}, hub={"mcp_listen": "127.0.0.1:0"})
    await hub.connected("asking")
    token = json.loads((hub.data_dir / "client.json").read_text())["token"]
    place = httpx2.URL(hub.ready["mcp"])
    front = await nginx(f"http://{place.host}:{place.port}")
    usual = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(base_url=front, headers=usual, trust_env=False, timeout=LIMIT_S) as host:
        about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        path = "/mcp/s/asking"
        hello = await host.post(path, json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about})
        session = {"mcp-session-id": hello.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        params = {"name": "ask", "arguments": {}}
        asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        async with (
            host.stream("GET", path, headers=session) as own,
            host.stream("POST", path, json=asked, headers=session) as called,
        ):
            news = own.aiter_lines()
            with anyio.fail_after(LIMIT_S):
                beats = 0
                async for line in news:  # more than nginx waits for, and nothing else is said
                    beats += line.startswith(":")
                    if beats == 2:
                        break
            (question,) = await hub.asked()
            await hub.client.inbox.answer(question.id, accept={"name": "Ada"})
            with anyio.fail_after(LIMIT_S):
                assert any(["accept Ada" in line async for line in called.aiter_lines()])


async def test_the_page_hears_of_a_question_at_once_through_nginx(
    nginx: Callable[..., Any], start_hub: Callable[..., Any], start_bridge: Callable[..., Any], peer_scripts: Path
) -> None:
    command, *args = asking(peer_scripts)
    hub = await start_hub({"asking": {"command": command, "args": [*args, "stdio"], "protocol": "2025-11-25"}})
    await hub.connected("asking")
    bridge = await start_bridge(hub)
    front = await nginx(bridge.origin)
    await bridge.login()
    async with httpx2.AsyncClient(
        base_url=front, cookies=dict(bridge.http.cookies), trust_env=False, timeout=LIMIT_S
    ) as browser:
        headers = {"origin": bridge.origin, "content-type": "application/json", "x-hubbub-token": bridge.token}
        async with bridge.http.stream("POST", "/api/feed", content=b"{}", headers=headers) as feed:
            assert feed.headers["x-accel-buffering"] == "no"
        async with browser.stream("POST", "/api/feed", content=b"{}", headers=headers) as feed:
            await hub.client.start_tool("asking", "ask", {"message": "Seen through nginx?"})
            with anyio.fail_after(LIMIT_S):
                async for line in feed.aiter_lines():
                    if "Seen through nginx?" in line:
                        break
                else:
                    pytest.fail("it ended without a word")
