"""`hubbub mcp login`: the address for the host, and the code for the person."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from hubbub.v1 import login_pb2

LINK = "https://hub.example/oauth/enter?code=ABCD-EFGH"


class Pages:
    """A browser that writes down what it is to open."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "opened"
        program = directory / "browser"
        program.write_text(f'#!/bin/sh\nprintf %s "$1" > {self._file}\n')
        program.chmod(0o700)
        self.env = {"BROWSER": f"{program} %s"}

    @property
    def opened(self) -> str:
        return self._file.read_text() if self._file.exists() else ""


@pytest.fixture
def pages(hub: Any, tmp_path: Path) -> Pages:
    """The hub has a code, and the person has a browser."""
    made = login_pb2.CreateLoginCodeResponse(
        code="ABCD-EFGH",
        link=LINK,
        expires_at=Timestamp(seconds=1_767_225_600),
        endpoint="https://hub.example/mcp",
    )
    hub.replies = {"CreateLoginCode": lambda _: made}  # pyright: ignore[reportUnknownLambdaType]
    return Pages(tmp_path)


@pytest.mark.parametrize(
    ("words", "address"),
    [
        ((), "https://hub.example/mcp"),
        (("--profile", "work"), "https://hub.example/mcp/p/work"),
        (("--server", "my server"), "https://hub.example/mcp/s/my%20server"),
    ],
)
async def test_it_prints_the_address_and_the_code_and_opens_the_page(
    hubbub: Any, pages: Pages, words: tuple[str, ...], address: str
) -> None:
    ran = await hubbub("mcp", "login", *words, json=False, env=pages.env)
    assert ran.status == 0
    lines = ran.out.splitlines()
    assert lines[0].endswith(f"  {address}")
    assert "ABCD-EFGH" in lines[2]
    assert lines[3].endswith(LINK)
    assert "tell the code to nobody" in ran.err
    assert pages.opened == LINK


async def test_it_opens_nothing_where_that_is_not_wanted(hubbub: Any, pages: Pages) -> None:
    assert (await hubbub("mcp", "login", "--no-browser", json=False, env=pages.env)).status == 0
    assert not pages.opened


async def test_a_script_gets_json_and_no_browser(hubbub: Any, pages: Pages) -> None:
    ran = await hubbub("mcp", "login", "--profile", "work", env=pages.env)
    (made,) = ran.lines
    assert (made["code"], made["link"], made["endpoint"]) == ("ABCD-EFGH", LINK, "https://hub.example/mcp/p/work")
    assert made["expires_at"].startswith("2026-01-01T00:00:00")
    assert not pages.opened


async def test_a_profile_and_a_server_are_one_too_many(hubbub: Any, pages: Pages) -> None:
    ran = await hubbub("mcp", "login", "--profile", "a", "--server", "b", env=pages.env)
    assert (ran.status, pages.opened) == (2, "")


async def test_a_hub_without_a_log_in_says_what_works_instead(hub: Any, hubbub: Any, refusal: Any) -> None:
    def refuse(_: Any) -> Any:
        raise refusal("FAILED_PRECONDITION", "LOGIN_OFF", "hosts cannot log in at this hub")

    hub.replies = {"CreateLoginCode": refuse}
    ran = await hubbub("mcp", "login")
    assert ran.status == 1
    assert "LOGIN_OFF" in ran.err
