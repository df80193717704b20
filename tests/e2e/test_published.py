"""Published servers as people install them."""

import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def page(tmp_path: Path) -> Iterator[str]:
    """The address of a page on this machine."""
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "index.html").write_text("<html><body><h1>Analytical Engine</h1></body></html>")
    serve = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "web"))
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()
        thread.join()


async def test_time_git_and_fetch_answer(start_hub: Any, mcp1_python: str, tmp_path: Path, page: str) -> None:
    work = tmp_path / "work"
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    subprocess.run(["git", "init", "--quiet", str(work)], check=True)
    subprocess.run(["git", *who, "-C", str(work), "commit", "--quiet", "--allow-empty", "-m", "Note G"], check=True)
    modules = {
        "time": ["mcp_server_time", "--local-timezone", "UTC"],
        "git": ["mcp_server_git", "--repository", str(work)],
        "fetch": ["mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips"],
    }
    hub = await start_hub({name: {"command": mcp1_python, "args": ["-m", *args]} for name, args in modules.items()})

    async def said(server: str, tool: str, arguments: dict[str, Any]) -> str:
        result = await hub.client.call_tool(server, tool, arguments)
        assert not result.is_error, result
        return result.text

    assert "UTC" in await said("time", "get_current_time", {"timezone": "UTC"})
    assert "Note G" in await said("git", "git_log", {"repo_path": str(work)})
    assert "Analytical Engine" in await said("fetch", "fetch", {"url": page, "raw": True})
    listed = (await hub.hubbub("servers", "list", "--wait", "connected", "--timeout", "30")).lines
    assert {server["name"]: server["state"] for server in listed} == dict.fromkeys(modules, "connected")
    for server in listed:
        assert server["server_info"]["name"]
        assert server["queue"]["completed"] == 1
        assert server["pid"]
