"""`hubbub mcp check HOST`: the hub's entry there, tried, and what the host's own command says of it."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from .host_files_of import home

__all__ = ["home"]

FIRST_LISTED = "Checking…\n\nhubbub: https://hub.example/mcp (HTTP) - "


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes a program of a host that prints something and ends; the file that has its arguments."""

    def install(name: str, output: str, *, status: int = 0, then: str = "") -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "output").write_text(output)
        program = folder / name
        program.write_text(f'#!/bin/sh\necho "$@" > {folder}/args\ncat {folder}/output\n{then}\nexit {status}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return folder / "args"

    return install


def has_entry(home: Path, entry: dict[str, Any], **more: Any) -> Path:
    file = home / ".claude.json"
    file.write_text(json.dumps({"mcpServers": {"hubbub": entry, **more}}))
    file.chmod(0o600)
    return file


WITH_TOKEN = {"type": "http", "url": "https://hub.example/mcp", "headers": {"Authorization": "Bearer hbt_x"}}


async def test_what_the_host_says_of_the_hub_is_shown(hub: Any, hubbub: Any, home: Path, installed: Any) -> None:
    has_entry(home, WITH_TOKEN)
    args = installed("claude", f"{FIRST_LISTED}✔ Connected\n")
    ran = await hubbub("mcp", "check", "claude-code")
    assert ran.status == 0, ran.out
    (found,) = ran.lines
    assert found["listed"] == {
        "state": "connected",
        "lines": ["hubbub: https://hub.example/mcp (HTTP) - ✔ Connected"],
    }
    assert (found["way"], found["faults"]) == ("https://hub.example/mcp, with a token", [])
    assert args.read_text() == "mcp list\n"
    shown = await hubbub("mcp", "check", "claude-code", json=False)
    assert "✔ Connected" in shown.out
    assert "hbt_x" not in shown.out


@pytest.mark.parametrize(
    ("said", "fault", "step"),
    [
        ("! Needs authentication", "has to log in", "claude mcp login hubbub"),
        ("⏸ Pending approval", "before you approve it", "approve it"),
        ("⊘ Disabled for this project", "switched off here", "switch it on"),
    ],
)
async def test_what_the_host_needs_is_said_with_the_next_step(
    said: str, fault: str, step: str, hub: Any, hubbub: Any, home: Path, installed: Any
) -> None:
    with Endpoint(401, {"WWW-Authenticate": 'Bearer resource_metadata="x"'}) as url:
        has_entry(home, {"type": "http", "url": url})
        installed("claude", f"hubbub: {url} (HTTP) - {said}\n")
        ran = await hubbub("mcp", "check", "claude-code")
    assert ran.status == 1
    (found,) = ran.lines[0]["faults"]
    assert fault in found["what"]
    assert step in found["next_step"]


async def test_a_command_that_does_not_end_is_ended_with_what_it_started(
    hub: Any, hubbub: Any, home: Path, installed: Any, tmp_path: Path
) -> None:
    has_entry(home, WITH_TOKEN)
    installed("claude", f"{FIRST_LISTED}✔ Connected\n", then=f"mkfifo {tmp_path}/never; cat {tmp_path}/never")
    ran = await hubbub("mcp", "check", "claude-code", "--limit", "1")
    assert ran.status == 1
    assert "did not end within 1 s" in ran.lines[0]["faults"][0]["what"]
    assert ran.lines[0]["listed"]["state"] == "connected"


async def test_a_command_that_fails_is_quoted(hub: Any, hubbub: Any, home: Path, installed: Any) -> None:
    has_entry(home, {"command": sys.executable, "args": ["hubbub", "mcp"]})
    installed("claude", "boom: no home\n", status=3)
    ran = await hubbub("mcp", "check", "claude-code")
    assert ran.lines[0]["faults"][0]["what"] == "`claude mcp list` ended with status 3: boom: no home"


async def test_a_file_without_a_token_may_be_read_by_others(hub: Any, hubbub: Any, home: Path, installed: Any) -> None:
    has_entry(home, {"command": sys.executable, "args": ["hubbub", "mcp"]}).chmod(0o644)
    installed("claude", f"{FIRST_LISTED}✔ Connected\n")
    assert (await hubbub("mcp", "check", "claude-code")).lines[0]["faults"] == []


async def test_of_endless_output_only_the_beginning_is_read(hub: Any, hubbub: Any, home: Path, installed: Any) -> None:
    has_entry(home, WITH_TOKEN)
    installed("claude", f"{'x' * 300_000}\n{FIRST_LISTED}✔ Connected\n")
    ran = await hubbub("mcp", "check", "claude-code")
    assert ran.lines[0]["faults"][0]["what"] == "`claude mcp list` does not list the hub"


class Endpoint:
    """Answers every POST in one way, and keeps its headers."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        seen = self.seen = list[dict[str, str]]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                seen.append({name.lower(): value for name, value in self.headers.items()})
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> str:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}/mcp"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


REFUSED = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"this token is not known here"}}'


@pytest.mark.parametrize(
    ("status", "body", "headers", "fault"),
    [
        (200, b"{}", {"Authorization": "Bearer x"}, ""),
        (401, REFUSED, {"Authorization": "Bearer x"}, "HTTP 401: this token is not known here"),
        (401, b"<html>", {}, "this hub lets no host log in"),
        (502, b"<html>", {"Authorization": "Bearer x"}, "HTTP 502"),
    ],
)
async def test_without_the_program_its_file_is_checked_and_the_address_in_it_tried(
    status: int, body: bytes, headers: dict[str, str], fault: str, hub: Any, hubbub: Any, home: Path
) -> None:
    endpoint = Endpoint(status, {}, body)
    with endpoint as url:
        file = home / ".codex/config.toml"
        file.parent.mkdir()
        file.write_text(f'[mcp_servers.hubbub]\nurl = "{url}"\nhttp_headers = {{{table(headers)}}}\n')
        file.chmod(0o600)
        ran = await hubbub("mcp", "check", "codex", env={"PATH": "/nonexistent"})
    (found,) = ran.lines
    assert (found["program"], found["listed"]) == (None, None)
    assert [fault in each["what"] for each in found["faults"]] == ([True] if fault else [])
    assert endpoint.seen[0].get("authorization") == headers.get("Authorization")


async def check_codex(hubbub: Any, home: Path, entry: str, **env: str) -> dict[str, Any]:
    file = home / ".codex/config.toml"
    file.parent.mkdir()
    file.write_text(f"[mcp_servers.hubbub]\n{entry}\n")
    file.chmod(0o600)
    ran = await hubbub("mcp", "check", "codex", env={"PATH": "/nonexistent", **env})
    return ran.lines[0]


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("http://127.0.0.1:PORT/mcp", "is no address: nonnumeric port: 'PORT'"),
        ("file:///etc/passwd", "is no address that begins with http:// or https://"),
    ],
)
async def test_an_address_that_is_none_is_named(url: str, fault: str, hub: Any, hubbub: Any, home: Path) -> None:
    (found,) = (await check_codex(hubbub, home, f'url = "{url}"'))["faults"]
    assert found["what"] == f"the entry does not work: {url} {fault}"


async def test_an_address_of_something_else_than_http_is_named(hub: Any, hubbub: Any, home: Path) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(bytes(9))  # a frame of HTTP/2, as a gRPC address sends
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        (found,) = (await check_codex(hubbub, home, f'url = "http://127.0.0.1:{port}/mcp"'))["faults"]
    assert "does not speak HTTP: is this the hub's address for hosts?" in found["what"]


async def test_a_token_is_neither_shown_nor_sent_to_where_a_redirect_leads(hub: Any, hubbub: Any, home: Path) -> None:
    elsewhere = Endpoint(200, {})
    with elsewhere as other, Endpoint(302, {"Location": other}) as url:
        headers = 'http_headers = {Authorization = "Bearer hbt_x"}'
        found = await check_codex(hubbub, home, f'url = "{url}"\n{headers}')
    assert "HTTP 302" in found["faults"][0]["what"]
    assert elsewhere.seen == []


async def test_a_header_that_cannot_be_sent_is_not_repeated(hub: Any, hubbub: Any, home: Path) -> None:
    headers = 'http_headers = {Authorization = "Bearer hbt_x\\nX: y"}'
    found = await check_codex(hubbub, home, f'url = "http://127.0.0.1:1/mcp"\n{headers}')
    assert "has characters that HTTP does not allow" in found["faults"][0]["what"]
    assert "hbt_x" not in json.dumps(found)


@pytest.mark.parametrize(
    "variable", ['bearer_token_env_var = "TOKEN"', 'http_headers = {Authorization = "Bearer ${TOKEN}"}']
)
async def test_an_entry_with_variables_of_its_host_is_not_judged(
    variable: str, hub: Any, hubbub: Any, home: Path
) -> None:
    endpoint = Endpoint(401, {})
    with endpoint as url:
        found = await check_codex(hubbub, home, f'url = "{url}"\n{variable}')
    assert (found["faults"], endpoint.seen) == ([], [])
    assert found["way"].endswith(", with a token")
    assert "only Codex knows the variables in it" in found["warnings"][0]


@pytest.mark.parametrize("entry", ['command = ""', "command = []", "command = 7", 'command = "hubbub"\nargs = "mcp"'])
async def test_a_command_of_another_form_is_named(entry: str, hub: Any, hubbub: Any, home: Path) -> None:
    (found,) = (await check_codex(hubbub, home, entry))["faults"]
    assert found["what"].startswith("the entry does not work: ")


def table(values: dict[str, str]) -> str:
    return ", ".join(f'{name} = "{value}"' for name, value in values.items())


async def test_an_entry_whose_command_has_gone_is_named(hub: Any, hubbub: Any, home: Path) -> None:
    has_entry(home, {"command": "/gone/hubbub", "args": ["mcp"]})
    ran = await hubbub("mcp", "check", "claude-code", env={"PATH": "/nonexistent"})
    (found,) = ran.lines[0]["faults"]
    assert found["what"] == "the entry does not work: /gone/hubbub is not there, or cannot be started"
    assert "mcp install claude-code" in found["next_step"]


async def test_a_host_without_the_hub_is_told_how_to_get_it(hub: Any, hubbub: Any, home: Path) -> None:
    ran = await hubbub("mcp", "check", "zed")
    assert ran.status == 1
    (found,) = ran.lines[0]["faults"]
    assert "has no entry of the hub" in found["what"]
    assert found["next_step"].endswith("mcp install zed")


async def test_what_is_there_twice_and_what_others_can_read_is_named(
    hub: Any, hubbub: Any, home: Path, installed: Any
) -> None:
    config = home / ".config/hubbub/hubbub.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[servers.files]\ncommand = "npx"\nargs = ["files"]\n')
    more = {"second": {"command": "/w/hubbub", "args": ["mcp"]}, "files": {"command": "npx", "args": ["files"]}}
    has_entry(home, WITH_TOKEN, **more).chmod(0o644)
    installed("claude", f"{FIRST_LISTED}✔ Connected\n")
    ran = await hubbub("mcp", "check", "claude-code")
    (found,) = ran.lines
    assert found["direct"] == ["files"]
    assert [each["what"].partition(":")[0] for each in found["faults"]] == [
        "the hub is there 2 times",
        f"others can read {home / '.claude.json'}, which has a token",
    ]


@pytest.mark.parametrize("words", [("emacs",), ("zed", "--profile", "x"), ("zed", "--limit", "0")])
async def test_wrong_usage_of_the_check_is_named(words: tuple[str, ...], hub: Any, hubbub: Any, home: Path) -> None:
    assert (await hubbub("mcp", "check", *words)).status == 2
