"""The servers that other tests run against start, misbehave as promised, and end."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ..ports import OF_THE_SYSTEM, reserved


@pytest.mark.parametrize("status", [401, 404, 429])
def test_a_refusing_server_answers_with_its_status(
    http_peer: Callable[..., Any], peer_scripts: Path, status: int
) -> None:
    peer = http_peer([sys.executable, str(peer_scripts / "bad.py"), "http", str(status)])
    assert httpx2.post(f"{peer.url}/mcp", json={}, trust_env=False).status_code == status
    peer.stop()
    with pytest.raises(httpx2.ConnectError):
        httpx2.post(f"{peer.url}/mcp", json={}, trust_env=False)


def test_a_port_of_a_test_is_given_to_nobody_else() -> None:
    with ExitStack() as held:
        ports = [held.enter_context(reserved()) for _ in range(200)]
        assert len(set(ports)) == len(ports)
        # A program that asks the system for any port gets one of these.
        assert max(ports) < int(OF_THE_SYSTEM.read_text().split()[0])


def test_a_peer_can_come_back_on_its_port(http_peer: Callable[..., Any], peer_scripts: Path, free_port: int) -> None:
    command = [sys.executable, str(peer_scripts / "bad.py"), "http", "404"]
    first = http_peer(command, port=free_port)
    first.stop()
    assert http_peer(command, port=free_port).url == first.url


def test_installed_peers_listen(
    http_peer: Callable[..., Any], everything_command: list[str], mcp1_python: str, peer_scripts: Path
) -> None:
    for command in (
        [*everything_command, "streamableHttp"],
        [mcp1_python, str(peer_scripts / "tasks_server.py"), "http"],
        [sys.executable, str(peer_scripts / "mrtr_server.py"), "http"],
    ):
        assert http_peer(command).process.poll() is None


@pytest.mark.usefixtures("processes")
def test_a_server_that_dies_at_its_start_says_why(peer_scripts: Path) -> None:
    ended = subprocess.run([sys.executable, str(peer_scripts / "bad.py"), "exit"], capture_output=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (3, b"")
    assert b"license" in ended.stderr
