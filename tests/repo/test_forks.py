"""A process that is forked is as one that a user starts."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import anyio
import pytest

from .. import forks
from ..forks.client import BIN, HERE, PEERS, AsyncForked, address, program
from ..forks.wire import PACKET_BYTES, ask

pytestmark = pytest.mark.usefixtures("processes")

LIMIT_S = 60
HUBBUB = str(BIN / "hubbub")


@pytest.mark.parametrize("words", [["--help"], ["--nope"], ["--json", "status"], ["call"]])
async def test_it_says_the_same_and_has_the_same_status(words: list[str], tmp_path: Path) -> None:
    env = os.environ | {"HUBBUB_DATA_DIR": str(tmp_path)}
    with anyio.fail_after(LIMIT_S):
        forked = await forks.run([HUBBUB, *words], env=env, cwd=tmp_path)
        real = await anyio.run_process([HUBBUB, *words], check=False, env=env, cwd=tmp_path)
    assert (forked.returncode, forked.stdout, forked.stderr) == (real.returncode, real.stdout, real.stderr)


async def ready(tmp_path: Path) -> Any:
    command = [sys.executable, "-m", "hubbubd", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]
    process = await forks.start(command, stdin=DEVNULL, stderr=None)
    assert isinstance(process, AsyncForked)
    assert process.stdout is not None
    assert json.loads(await process.stdout.receive())["event"] == "ready"
    return process


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
async def test_it_has_a_pid_and_takes_signals(number: int, status: int, tmp_path: Path) -> None:
    with anyio.fail_after(LIMIT_S):
        process = await ready(tmp_path)
        assert process.returncode is None
        assert Path(f"/proc/{process.pid}").exists()
        os.kill(process.pid, number)
        assert await process.wait() == process.returncode == status
        assert not Path(f"/proc/{process.pid}").exists()
        process.terminate()  # harmless by now
        await process.aclose()


SAYS = "import json, os, sys, time; print(json.dumps([os.getcwd(), dict(os.environ), sys.argv[1:], time.tzname[0]]))"


def test_it_has_the_folder_the_environment_and_the_time_zone_that_are_asked_for(tmp_path: Path) -> None:
    script, said = tmp_path / "says.py", tmp_path / "said"
    script.write_text(SAYS)
    env = {"ONLY": "this", "TZ": "XYZ3"}
    with said.open("wb") as output:
        descriptors = (output.fileno(),) * 3
        way, _, process = ask(address(), str(script), ["word"], env, str(tmp_path), descriptors)
    way.settimeout(LIMIT_S)
    assert int(way.recv(PACKET_BYTES)) == 0
    way.close()
    os.close(process)
    assert json.loads(said.read_text()) == [str(tmp_path), env, ["word"], "XYZ"]


async def test_who_hangs_up_leaves_no_process(tmp_path: Path) -> None:
    with anyio.fail_after(LIMIT_S):
        process = await ready(tmp_path)
        process._forked.way.close()
        while Path(f"/proc/{process.pid}").exists():
            await anyio.sleep(0.02)


def stat(pid: int) -> list[str]:
    """What /proc/PID/stat says of a process, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def stop(server: int) -> None:
    """Has the fork server hear of what comes now all at once, later."""
    os.kill(server, signal.SIGSTOP)
    while stat(server)[0] != "T":
        time.sleep(0.01)


class Asked:
    """A process that the fork server has begun: one that waits, or does nothing."""

    def __init__(self, tmp_path: Path, does: str) -> None:
        script = tmp_path / f"{does}.py"
        script.write_text({"waits": "import signal; signal.pause()", "nothing": ""}[does])
        with Path(os.devnull).open("r+b") as nowhere:
            descriptors = (nowhere.fileno(),) * 3
            self.way, self.pid, self.process = ask(address(), str(script), [], os.environ, str(tmp_path), descriptors)
        self.way.settimeout(LIMIT_S)

    def kill(self) -> None:
        signal.pidfd_send_signal(self.process, signal.SIGKILL)
        while stat(self.pid)[0] != "Z":
            time.sleep(0.01)

    def hang_up(self) -> None:
        self.way.close()
        os.close(self.process)

    def status(self) -> int:
        said = int(self.way.recv(PACKET_BYTES))
        self.hang_up()
        return said


def test_a_process_that_ends_while_who_asked_for_it_hangs_up_harms_no_other(tmp_path: Path) -> None:
    one = Asked(tmp_path, "waits")
    server = int(stat(one.pid)[1])
    stop(server)
    one.kill()
    one.hang_up()
    os.kill(server, signal.SIGCONT)
    assert Asked(tmp_path, "nothing").status() == 0


def test_a_process_that_is_asked_for_while_another_ends_has_nothing_to_do_with_that(tmp_path: Path) -> None:
    assert Asked(tmp_path, "nothing").status() == 0
    one = Asked(tmp_path, "waits")
    server = int(stat(one.pid)[1])
    stop(server)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as way, Path(os.devnull).open("r+b") as nowhere:
        way.settimeout(LIMIT_S)
        way.connect(address())
        packet = {"program": str(tmp_path / "nothing.py"), "arguments": [], "env": {}, "cwd": str(tmp_path)}
        socket.send_fds(way, [json.dumps(packet).encode()], (nowhere.fileno(),) * 3)
        one.kill()
        os.kill(server, signal.SIGCONT)
        way.recv(PACKET_BYTES)  # its pid
        assert (int(way.recv(PACKET_BYTES)), one.status()) == (0, -signal.SIGKILL)


def launched() -> "subprocess.Popen[bytes]":
    server = {"command": sys.executable, "args": [str(PEERS / "asking_server.py"), "stdio"]}
    quick = forks.quick(server)
    assert address() in quick["args"]
    return subprocess.Popen([quick["command"], *quick["args"]], stdin=PIPE, stdout=PIPE)


@pytest.mark.parametrize("ends", ["by itself", "killed"])
def test_a_server_that_is_forked_ends_with_what_stands_for_it(ends: str) -> None:
    with launched() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        process.stdin.write(json.dumps(hello).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "asking"
        if ends == "by itself":
            process.stdin.close()
        else:
            process.kill()
        assert process.stdout.read() == b""
        assert process.wait(LIMIT_S) == (0 if ends == "by itself" else -signal.SIGKILL)


WAITS = "import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); print('ready', flush=True); signal.pause()"


def test_a_server_that_is_forked_gets_the_signals_of_what_stands_for_it(tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(WAITS)
    command = [sys.executable, "-I", "-S", HERE / "launch.py", address(), script]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with subprocess.Popen(command, stdin=DEVNULL, stdout=PIPE, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.wait(LIMIT_S) == 7


def test_only_what_imports_for_long_is_forked() -> None:
    assert program([sys.executable, "-m", "hubbubd", "--version"]) == ("hubbubd", ["--version"])
    assert program([HUBBUB, "status"]) == ("hubbub", ["status"])
    assert program([sys.executable, str(PEERS / "plain_server.py")]) is None
    assert program([sys.executable, "-c", "pass"]) is None


def test_a_server_with_variables_is_forked_unless_they_are_read_at_the_start_of_python() -> None:
    server = {"command": sys.executable, "args": [str(PEERS / "asking_server.py"), "stdio"]}
    own = server | {"env": {"JOURNAL": "journal.jsonl"}}
    assert forks.quick(own) == forks.quick(server) | {"env": own["env"]}
    early = server | {"env": {"PYTHONUTF8": "0"}}
    assert forks.quick(early) == early


async def test_what_is_read_at_the_start_of_python_starts_it(tmp_path: Path) -> None:
    with anyio.fail_after(LIMIT_S):
        async with await forks.start([HUBBUB, "--help"], env=os.environ | {"PYTHONUTF8": "0"}) as process:
            assert not isinstance(process, AsyncForked)


async def test_what_a_test_sets_in_its_own_environment_starts_python_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with anyio.fail_after(LIMIT_S):
        async with await forks.start([HUBBUB, "--help"]) as process:
            assert not isinstance(process, AsyncForked)


async def test_what_is_started_for_real_is_not_forked(started_for_real: None) -> None:
    """The last one here: the fixture holds for the rest of the module."""
    assert forks.quick({"command": sys.executable, "args": [str(PEERS / "asking_server.py")]})["args"][:1] != ["-I"]
    with anyio.fail_after(LIMIT_S):
        async with await forks.start([HUBBUB, "--help"]) as process:
            assert not isinstance(process, AsyncForked)
