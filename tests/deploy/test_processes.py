"""What the containers run, run without containers: the same configuration and commands, with paths and ports mapped."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from ..e2e.conftest import RunningHub, environment, running
from ..web.conftest import Bridge
from .conftest import DEPLOY, LIMIT_S, ROOT, SERVICES, installed


def health_of_image(path: str) -> list[str]:
    """The command of an image's health check."""
    found = re.search(r"HEALTHCHECK .*?CMD (\[.*?\])$", (ROOT / path).read_text(), re.DOTALL | re.MULTILINE)
    assert found
    return json.loads(found[1])


async def is_well(command: list[str], directory: Path) -> bool:
    program, *words = command
    found = sys.executable if program.endswith("python") else str(installed(program))
    env = environment() | {"HUBBUB_DATA_DIR": str(directory)}
    with anyio.fail_after(LIMIT_S):
        done = await anyio.run_process([found, *words], check=False, env=env)
    return done.returncode == 0


@pytest.fixture
async def demo(http_peer: Callable[..., Any], mcp1_python: str) -> Any:
    """The demo's server over HTTP."""
    return http_peer([mcp1_python, str(ROOT / "docs/demo/server.py"), "http"])


@pytest.fixture
async def hub(demo: Any, tmp_path: Path) -> Any:
    """The hub with the configuration of the containers."""
    options = SERVICES["hub"]["command"]
    assert options == ["--config", "/etc/hubbub/hubbub.toml"]
    arguments = ["--config", str(DEPLOY / "hub/hubbub.toml")]
    mapped = ["--data-dir", str(tmp_path / "state"), "--listen", f"unix:{tmp_path}/state/hub.sock"]
    async with running([*arguments, *mapped], env=environment() | {"DEMO_URL": f"{demo.url}/mcp"}) as started:
        yield started


async def test_a_question_of_the_demo_is_answered_through_the_door(
    hub: RunningHub, start_bridge: Callable[..., Any], http_peer: Callable[..., Any], tool: Callable[[str], str]
) -> None:
    assert hub.ready["grpc"].startswith("unix:")
    await hub.connected("demo")
    inside, *options = SERVICES["web"]["entrypoint"][3:]
    bridge = await start_bridge(hub, *options)
    listen, forward = SERVICES["door"]["command"]
    mapped = [
        listen.replace(":7881,", ":$PORT,bind=127.0.0.1,"),
        forward.replace(inside, bridge.origin.removeprefix("http://")),
    ]
    socat = http_peer(["sh", "-c", " ".join(["exec", tool("socat"), *mapped])])
    async with httpx2.AsyncClient(base_url=socat.url, trust_env=False, timeout=LIMIT_S) as http:
        door = Bridge(bridge.link.replace(bridge.origin, socat.url), bridge.process, http)
        await door.login()
        await door.post("rename", {"name": "Ada"})
        call = await hub.client.start_tool("demo", "order_lunch")
        (asked,) = await hub.asked()
        answer = {"id": asked.id, "answer_id": "a", "accept": {"dish": "soup", "portions": 2}}
        assert (await door.post("answer", answer)).json()["answered_by"] == "Ada"
        done = await hub.call(call.id)
    assert done.result["content"][0]["text"] == "Ordered: 2 x soup"


async def test_health_checks_tell_those_that_are_well_from_those_that_are_gone(
    hub: RunningHub, demo: Any, start_bridge: Callable[..., Any]
) -> None:
    bridge = await start_bridge(hub)
    port = bridge.origin.rpartition(":")[2]
    kind, *web = SERVICES["web"]["healthcheck"]["test"]
    assert kind == "CMD"
    checks = {
        "hub": health_of_image("hub/Dockerfile"),
        "web": [word.replace("7880", port) for word in web],
        "demo": [word.replace("8000", str(demo.port)) for word in health_of_image("docs/deploy/demo/Dockerfile")],
    }
    for name, check in checks.items():
        assert await is_well(check, hub.data_dir), name
    bridge.process.terminate()
    with anyio.fail_after(LIMIT_S):
        await bridge.process.wait()
    await hub.terminate()
    demo.stop()
    for name, check in checks.items():
        assert not await is_well(check, hub.data_dir), name


async def test_the_inbox_needs_nothing_of_the_hub_but_its_socket_and_its_file(
    hub: RunningHub, start_bridge: Callable[..., Any]
) -> None:
    """As in its container, where the hub's directory cannot be written: there is no folder of the page's, either."""
    (hub.data_dir / "web").touch()
    before = {path.name for path in hub.data_dir.iterdir()}
    assert {"client.json", "hub.sock"} <= before
    bridge = await start_bridge(hub)
    await bridge.login()
    assert (await bridge.post("me")).status_code == 200
    assert {path.name for path in hub.data_dir.iterdir()} == before
    modes = {name: (hub.data_dir / name).stat().st_mode & 0o777 for name in ("client.json", "hub.sock")}
    assert modes == {"client.json": 0o600, "hub.sock": 0o600}
