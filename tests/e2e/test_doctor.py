"""`hubbub doctor`, `hubbub status` and `hubbubd --check-config`: what an operator sees, with a hub and without."""

import os
import socket
import sys
from pathlib import Path
from typing import Any

import anyio

from .conftest import BIN, LIMIT_S, environment


async def shell(*words: str, **env: str) -> tuple[int, str, str]:
    """A run of a command to its end, as text: status, stdout, stderr."""
    with anyio.fail_after(LIMIT_S):
        ran = await anyio.run_process([str(BIN / words[0]), *words[1:]], check=False, env=environment() | env)
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


def found(lines: list[Any]) -> dict[str, Any]:
    return {line["about"]: line for line in lines}


async def test_a_hub_that_is_well_passes_and_each_trouble_says_what_to_do(start_hub: Any, peer_scripts: Path) -> None:
    peer = {"command": sys.executable, "args": [str(peer_scripts / "plain_server.py")]}
    hub = await start_hub({"good": peer}, connected=True)
    well = await hub.hubbub("doctor")
    assert well.status == 0, well.out
    assert {line["verdict"] for line in well.lines} == {"ok"}
    assert {"hub", "versions", "configuration", "store", "clock", "server good", "inbox"} <= found(well.lines).keys()

    config = hub.data_dir.parent / "hub-0.toml"
    config.write_text('[hub]\nwatch_config = false\n[servers.gone]\ncommand = "no-such-command"\nretries = 0\n')
    (hub.data_dir / "client.json").chmod(0o644)
    assert (await hub.hubbub("reload")).status == 0
    await hub.watched(hub.client.servers.watch(["gone"]), lambda s: s.error is not None)
    config.write_text("[hub\n")
    ill = await hub.hubbub("doctor")
    told = found(ill.lines)
    assert ill.status == 1
    assert told["configuration"]["verdict"] == "fail"
    assert told["secrets"]["verdict"] == "warn"
    assert told["secrets"]["advice"].startswith("chmod go= ")
    assert told["server gone"]["advice"].startswith("install it, or write its whole path")
    assert told["server gone"]["advice"].endswith("\nmore: hubbub explain COMMAND_NOT_FOUND")

    viewer = (await hub.hubbub("tokens", "create", "eye", "--role", "viewer")).record["secret"]
    seen = found((await hub.hubbub("--token", viewer, "doctor")).lines)
    assert seen["hub's own checks"]["verdict"] == "warn"


async def test_without_a_hub_it_says_so_and_looks_at_what_is_here(tmp_path: Path) -> None:
    status, out, _ = await shell("hubbub", "--data-dir", str(tmp_path / "none"), "doctor")
    assert status == 1
    assert "fail  hub: no hub found" in out
    assert "hubbubd --check-config" in out
    assert f"warn  data directory {tmp_path}/none: it is not there" in out

    status, out, _ = await shell("hubbub", "--data-dir", "x" * 300, "doctor")
    assert status == 1
    assert f"/{'x' * 300}: it cannot be looked at: File name too long" in out

    client = tmp_path / "client.json"
    client.write_text('{"address": "127.0.0.1:1", "token": "t"}')
    for mode in (0o640, 0o604):
        client.chmod(mode)
        status, out, _ = await shell("hubbub", "--connect-timeout", "0.2", "--data-dir", str(tmp_path), "doctor")
        assert status == 1
        assert f"warn  {client}: others may read the token in it\n      chmod go= {client}" in out
    client.chmod(0o600)
    _, out, _ = await shell("hubbub", "--connect-timeout", "0.2", "--data-dir", str(tmp_path), "doctor")
    assert f"ok    {client}: only its owner can read it" in out


async def test_the_status_is_one_page_with_each_server_and_what_is_wrong(start_hub: Any, peer_scripts: Path) -> None:
    peer = {"command": sys.executable, "args": [str(peer_scripts / "plain_server.py")]}
    hub = await start_hub({"good": peer, "gone": {"command": "no-such-command", "retries": 0}})
    await hub.connected("good")
    await hub.watched(hub.client.servers.watch(["gone"]), lambda s: s.error is not None)
    await hub.client.start_tool("good", "ask", {"message": "Who?"})
    await hub.asked()
    status, out, err = await shell("hubbub", "--data-dir", str(hub.data_dir), "status")
    assert (status, err) == (0, "")
    for words in (
        "serving at",
        "Python",
        "2026-07-28",
        "1 connected",
        "open: 1 elicitation_form",
        "records",
        "hub-0.toml",
    ):
        assert words in out
    for words in ("COMMAND_NOT_FOUND", "hubbub explain COMMAND_NOT_FOUND", "inbox answer", "telemetry"):
        assert words in out
    told = (await hub.hubbub("status")).record
    assert (told["serving"], told["config"]["watched"], told["telemetry"]["on"]) == (True, True, False)
    watch = await hub.start_hubbub("status", "--watch")
    assert (await watch.next())["pid"] == (await watch.next())["pid"] == hub.process.pid
    assert await watch.interrupt() == 0


async def test_the_check_before_the_start_fails_for_what_would_stop_it(tmp_path: Path, start_hub: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as answering:
        silent, there = taken.getsockname()[1], answering.getsockname()[1]
        config = tmp_path / "hub.toml"
        config.write_text(
            f'[hub]\nmetrics_listen = "127.0.0.1:{there}"\n'
            f'[servers.a]\nurl = "http://127.0.0.1:{there}/mcp"\n[servers.b]\nurl = "http://127.0.0.1:1/mcp"\n'
        )
        words = ["--check-config", "--config", str(config), "--data-dir", str(tmp_path / "new")]
        status, out, _ = await shell("hubbubd", *words, "--listen", f"127.0.0.1:{silent}")
        assert status == 1
        assert f"fail  listen 127.0.0.1:{silent}: Address already in use" in out
        assert f"fail  metrics_listen 127.0.0.1:{there}: Address already in use" in out
        assert f"ok    server a: 127.0.0.1:{there} answers" in out
        assert "warn  server b: 127.0.0.1:1: " in out

    hub = await start_hub()
    beside = ["--check-config", "--data-dir", str(hub.data_dir), "--listen", hub.ready["grpc"]]
    status, out, _ = await shell("hubbubd", *beside)
    assert status == 0, out
    assert "a hub has it open" in out
    assert "in use by the running hub" in out
    await hub.terminate()
    store = hub.data_dir / "hubbub.db"
    with store.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(8192))
    status, out, _ = await shell("hubbubd", *beside)
    assert status == 1
    assert "fail  store" in out


async def test_the_check_says_of_each_server_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        config = tmp_path / "hub.toml"
        config.write_text(
            f'[servers.idle]\ncommand = "{sys.executable}"\nheaders = {{ A = "b" }}\n'
            f'[servers.home]\ncommand = "~/bin/x"\n[servers.refused]\nurl = "http://127.0.0.1:1/mcp"\n'
            f'[servers.words]\nurl = "http://127.0.0.1:{port}/mcp"\nargs = ["x"]\n'
            f'[servers.routed]\nurl = "http://127.0.0.1:{port}/mcp"\nheaders = {{ hOst = "other", X-A = "b" }}\n'
        )
        words = ["--check-config", "--config", str(config), "--data-dir", str(tmp_path / "new")]
        status, out, _ = await shell("hubbubd", *words, "--listen", f"unix:{tmp_path}/new/hub.sock")
    assert status == 0, out
    for line in (
        "ok    configuration: 5 servers in",
        "hub.sock: its directory is there, or will be made",
        "warn  server idle: it is started by a command, so these are ignored: headers",
        "warn  server home: ~/bin/x is not on PATH, or cannot be executed\n      write ${HOME}",
        "warn  server refused: 127.0.0.1:1: Connection refused",
        "warn  server words: it is reached by its url, so these are ignored: args",
        "warn  server routed: its headers set what only the hub may set: hOst\n      take them out",
    ):
        assert line in out
