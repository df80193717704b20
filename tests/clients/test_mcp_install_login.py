"""`hubbub mcp install HOST --login`: the address under which the hub lets hosts log in, or that it lets none."""

import json
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from .host_files_of import home

__all__ = ["home"]

Answering = Callable[[int, bytes], AbstractContextManager[str]]


@pytest.fixture
def answering(hub: Any) -> Answering:
    """Has the hub of this machine serve an endpoint, at which it says one thing of its log-in."""

    @contextmanager
    def serve(status: int, body: bytes) -> Generator[str]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_asked = self.path == "/.well-known/oauth-protected-resource/mcp"
                self.send_response(status if is_asked else 500)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/mcp"
        file = hub.data_dir / "client.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "mcp": url}))
        try:
            yield url
        finally:
            server.shutdown()
            server.server_close()

    return serve


def url_in(snippet: str) -> str:
    return json.loads(snippet)["mcpServers"]["hubbub"]["url"]


@pytest.mark.parametrize(
    ("body", "address"),
    [
        (b'{"resource": "https://hub.example/mcp"}', "https://hub.example/mcp"),
        (b'{"resource": "https://elsewhere.example/api"}', None),
        (b'{"resource": "file:///mcp"}', None),
        (b'{"resource": "https://[/mcp"}', None),
        (b'{"resource": 7}', None),
        (b"[]", None),
        (b"<html>", None),
    ],
)
async def test_the_entry_has_the_address_that_the_hub_shows(
    body: bytes, address: str | None, answering: Answering, hubbub: Any, home: Path
) -> None:
    with answering(200, body) as own:
        (shown,) = (await hubbub("mcp", "install", "cursor", "--login", "--print", "--profile", "work")).lines
    assert url_in(shown["snippet"]) == f"{address or own}/p/work"


async def test_an_address_that_is_given_and_an_entry_with_a_token_stay_as_they_are(
    answering: Answering, hubbub: Any, home: Path
) -> None:
    with answering(200, b'{"resource": "https://hub.example/mcp"}') as own:
        (given,) = (await hubbub("mcp", "install", "cursor", "--login", "--print", "--url", "http://x/mcp")).lines
        (token,) = (await hubbub("mcp", "install", "cursor", "--http", "--print")).lines
    assert (url_in(given["snippet"]), url_in(token["snippet"])) == ("http://x/mcp", own)


async def test_a_hub_that_lets_no_host_log_in_is_said_before_anything_is_written(
    answering: Answering, hubbub: Any, home: Path
) -> None:
    with answering(404, b"{}"):
        ran = await hubbub("mcp", "install", "cursor", "--login")
    assert ran.status == 2
    assert "mcp_login = true" in ran.error["message"]
    assert list(home.iterdir()) == []


async def test_without_an_answer_the_entry_has_the_address_of_the_listener(
    answering: Answering, hubbub: Any, home: Path
) -> None:
    with answering(200, b"{}") as own:
        pass
    (shown,) = (await hubbub("mcp", "install", "cursor", "--login", "--print")).lines
    assert url_in(shown["snippet"]) == own
