"""`hubbubd` with Connect, met by the TypeScript example and by hand."""

import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import STDOUT
from typing import Any

import anyio
import httpx2
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from .conftest import LIMIT_S, environment

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "clients" / "typescript"
ON = {"connect_listen": "127.0.0.1:0"}


@pytest.fixture
def example(installed_typescript: Path, tmp_path: Path) -> Path:
    """The example as it is in the repository, beside what was installed and generated for it."""
    place = tmp_path / "typescript"
    shutil.copytree(EXAMPLE / "src", place / "src")
    for name in ("package.json", "tsconfig.json"):
        shutil.copy(EXAMPLE / name, place)
    for name in ("node_modules", "gen", "node"):
        (place / name).symlink_to(installed_typescript / name)
    return place


async def node(place: Path, *words: str, lines: str = "", data_dir: Path | None = None) -> tuple[int, str]:
    """A run of node there to its end: exit status and all that it wrote."""
    with anyio.fail_after(LIMIT_S):
        done = await anyio.run_process(
            [str(place / "node"), *words],
            input=lines.encode(),
            stderr=STDOUT,
            check=False,
            cwd=place,
            env=environment() | {"HUBBUB_DATA_DIR": str(data_dir)},
        )
    return done.returncode, done.stdout.decode()


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Callable[..., Any], mcp1_python: str) -> Any:
    """A hub with Connect and the demo's own server."""
    demo = {"command": mcp1_python, "args": [str(REPOSITORY / "docs" / "demo" / "server.py")]}
    return await start_shared_hub({"demo": demo}, hub=ON, connected=True)


async def test_the_ready_line_and_client_json_say_where_connect_is(hub: Any) -> None:
    found = json.loads((hub.data_dir / "client.json").read_text())
    assert found["connect"] == hub.ready["connect"]
    async with httpx2.AsyncClient(base_url=found["connect"], trust_env=False) as http:
        headers = {"authorization": f"Bearer {found['token']}"}
        status = await http.post("/hubbub.v1.AdminService/GetStatus", json={}, headers=headers)
        assert int(status.json()["pid"]) == hub.process.pid


async def test_the_document_shows_what_curl_gets(hub: Any) -> None:
    document = (REPOSITORY / "docs" / "connect.md").read_text()
    by_hand = document[document.index("## By hand") : document.index("## The JSON")]
    shown = by_hand.replace("~/.local/share/hubbub", str(hub.data_dir)).replace(
        "http://127.0.0.1:7879", hub.ready["connect"]
    )
    listing, starting, watching, answering = re.findall(r"```sh\n(.+?)```", shown, re.DOTALL)
    with anyio.fail_after(LIMIT_S):
        assert json.loads(await shell(listing))["servers"][0]["name"] == "demo"
        _, started = (json.loads(line) for line in (await shell(listing, starting)).splitlines())
        assert started["call"]["params"] == {"name": "order_lunch"}
        asked = await first_line(listing, watching, wanted='"upsert"')
        assert asked["upsert"]["request"]["message"] == "What would you like for lunch?"
        _, _, answered, ended = (json.loads(line) for line in (await shell(listing, starting, answering)).splitlines())
    assert answered["pendingRequest"]["id"] == asked["upsert"]["id"]
    assert ended["call"]["result"]["content"] == [{"type": "text", "text": "Ordered: 2 x soup"}]


def in_lines(*commands: str) -> str:
    return "\n".join(commands).replace("curl -sS ", "curl -sS -w '\\n' ")


async def shell(*commands: str) -> str:
    """What commands print, each response of the hub on a line of its own."""
    done = await anyio.run_process(["bash", "-euc", in_lines(*commands)], env=environment() | {"no_proxy": "127.0.0.1"})
    return done.stdout.decode()


async def first_line(*commands: str, wanted: str) -> Any:
    """The first wanted line that commands print which end never."""
    env = environment() | {"no_proxy": "127.0.0.1"}
    async with await anyio.open_process(
        ["bash", "-euc", in_lines(*commands)], env=env, start_new_session=True
    ) as running:
        assert running.stdout is not None
        try:
            lines = BufferedByteReceiveStream(running.stdout)
            while wanted not in (line := (await lines.receive_until(b"\n", 1024 * 1024)).decode()):
                pass
        finally:
            os.killpg(running.pid, signal.SIGKILL)
    return json.loads(line)


@pytest.mark.parametrize("protocol", [[], ["--grpc-web"]], ids=["connect", "grpc-web"])
async def test_the_typescript_example_calls_a_tool_and_answers_its_form(
    hub: Any, example: Path, protocol: list[str]
) -> None:
    too_many, right = ["soup", "99", "", ""], ["", "2", "true", "no onions"]
    status, said = await node(
        example,
        "src/call.ts",
        *protocol,
        "demo",
        "order_lunch",
        lines="\n".join([*too_many, *right, ""]),
        data_dir=hub.data_dir,
    )
    assert status == 0, said
    assert "Dish (soup, curry, pasta) [curry]: " in said
    assert "portions" in said
    assert "Ordered: 2 x spicy curry (no onions)" in said
    assert said.count("What would you like for lunch?") == 2


async def test_the_typescript_example_says_why_it_is_refused(hub: Any, example: Path) -> None:
    status, said = await node(example, "src/call.ts", "nobody", "tool", data_dir=hub.data_dir)
    assert status == 1
    assert "not_found" in said


async def test_the_typescript_example_fits_the_types_that_are_generated(example: Path) -> None:
    status, said = await node(example, "node_modules/typescript/lib/tsc.js")
    assert (status, said) == (0, "")
