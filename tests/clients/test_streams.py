"""The commands where their streams, signals and surroundings are not what they should be."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub.v1 import common_pb2, inbox_pb2, server_pb2
from hubbub_cli.run import streams
from hubbub_cli.syntax import bounds

from .conftest import HUBBUB, staying

HUBBUBD = str(Path(sys.executable).with_name("hubbubd"))
SURROUNDINGS = [
    {"HOME": ""}, {"HOME": "/proc"}, {"LC_ALL": "C"}, {"TERM": "dumb"}, {"COLUMNS": "9" * 30}, {"COLUMNS": "-1"},
    {"COLUMNS": "x"}, {"COLUMNS": "9" * 5000}, {"LINES": "9" * 5000}, {"PYTHONIOENCODING": "ascii"},
]  # fmt: skip


async def ran(command: str) -> subprocess.CompletedProcess[bytes]:
    """A line of the shell, to its end."""
    with anyio.fail_after(60):
        return await anyio.run_process(["bash", "-c", f"set -o pipefail; {command}"], check=False)


async def all_ran(commands: Sequence[str]) -> list[subprocess.CompletedProcess[bytes]]:
    """All of them, two at once, in their order."""
    done: dict[str, subprocess.CompletedProcess[bytes]] = {}
    two = anyio.CapacityLimiter(2)

    async def one(command: str) -> None:
        async with two:
            done[command] = await ran(command)

    async with anyio.create_task_group() as group:
        for command in commands:
            group.start_soon(one, command)
    return [done[command] for command in commands]


def unclean(done: subprocess.CompletedProcess[bytes]) -> bool:
    return any(word in done.stderr for word in (b"Traceback", b"INTERNAL", b"Exception ignored"))


def listing(hub: Any, many: int) -> None:
    servers = [server_pb2.Server(name=f"é{number}" + "x" * 200) for number in range(many)]
    hub.replies["ListServers"] = lambda _: server_pb2.ListServersResponse(servers=servers)


CLOSED = ("<&-", ">&-", "2>&-", "<&- >&- 2>&-", "> /dev/full", "2> /dev/full", "| head -c 1")


async def test_a_stream_that_is_closed_or_full_is_no_fault(hub: Any) -> None:
    listing(hub, 3000)
    lines = [f"{HUBBUB} --data-dir {hub.data_dir} servers list {closed}" for closed in CLOSED]
    full = f"{HUBBUB} --data-dir {hub.data_dir} --json servers list > /dev/full"
    *done, told = await all_ran([*lines, full])
    assert [each for each in done if unclean(each) or each.returncode not in (0, 1)] == []
    assert json.loads(told.stderr.splitlines()[-1])["reason"] == "OUTPUT_FAILED"


async def test_help_and_version_that_cannot_be_written_have_failed() -> None:
    settings, words = ("PYTHONUNBUFFERED=", "PYTHONUNBUFFERED=1"), ("--help", "--version")
    for done in await all_ran([f"{each} {HUBBUB} {word} > /dev/full" for each in settings for word in words]):
        assert done.returncode == 1
        assert b"(OUTPUT_FAILED)" in done.stderr


@pytest.mark.parametrize(
    "write", [lambda: sys.stdout.write("x" * 100_000), lambda: sys.stdout.flush()], ids=["write", "flush"]
)
def test_a_reader_that_leaves_is_no_failure_of_the_output(
    write: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stdout = open(writer, "w", closefd=False)  # noqa: SIM115 - closed below, without what it could not write
    stdout.write("x")
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    streams.open_missing_streams()
    with pytest.raises(BrokenPipeError):
        write()
    streams.discard_output(writer)
    stdout.close()
    os.close(writer)


async def test_a_daemon_without_its_streams_ends_without_a_traceback(tmp_path: Path) -> None:
    words = ("--check-config", "--config /proc/none", "--listen x", "--xyz", "--help", "--listen x")
    done = await all_ran(
        [
            f"{HUBBUBD} --data-dir {tmp_path / 'data'} {word} {closed}"
            for word, closed in zip(words, CLOSED, strict=False)
        ]
    )
    assert [each for each in done if unclean(each) or each.returncode not in (0, 1, 2)] == []


@pytest.mark.parametrize("words", [(b"servers", b"get", b"\xff"), (b"--as", b"\xfe", b"status")])
async def test_an_argument_that_is_no_text_is_wrong_usage(hub: Any, words: tuple[bytes, ...]) -> None:
    done = await anyio.run_process([HUBBUB.encode(), b"--json", *words], check=False)
    assert done.returncode == 2
    assert json.loads(done.stderr.splitlines()[-1])["reason"] == "USAGE"


@pytest.mark.parametrize(
    ("size", "bounded"),
    [("120", "120"), ("00120", "120"), ("9999", "9999"), ("10001", "10000"), ("9" * 5000, "10000"), ("0", None)],
)
def test_a_size_of_the_terminal_is_a_number_that_libraries_can_read(
    size: str, bounded: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", size)
    monkeypatch.setenv("LINES", "x")
    bounds.clamp_terminal_size()
    assert (os.environ.get("COLUMNS"), os.environ.get("LINES")) == (bounded, None)


async def test_an_option_of_a_servers_command_is_not_taken_for_one_of_this_command(tmp_path: Path) -> None:
    words = f"{HUBBUB} --data-dir {tmp_path} --connect-timeout 0 servers add one -- cmd --json"
    plain, told = await all_ran([words, words.replace(HUBBUB, f"{HUBBUB} --json", 1)])
    assert plain.stderr.startswith(b"error: ")
    assert json.loads(told.stderr.splitlines()[-1])["reason"]


async def test_no_surroundings_are_too_odd(hub: Any, hubbub: Any) -> None:
    listing(hub, 2)
    for environ in SURROUNDINGS:
        plain = await hubbub("servers", "list", json=False, env=environ)
        assert plain.status == 0, (environ, plain.err)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_a_watch_without_a_traceback(hub: Any, number: signal.Signals, hubbub_process: Any) -> None:
    watch = staying(inbox_pb2.WatchPendingRequestsResponse(synced=common_pb2.WatchSynced()))
    hub.streams["WatchPendingRequests"] = watch
    with anyio.fail_after(60):
        async with await hubbub_process("inbox", "watch") as process:
            assert await process.stdout.receive()
            os.kill(process.pid, number)
            said = b"".join([part async for part in process.stderr])
            assert await process.wait() == (0 if number == signal.SIGINT else -number)
    assert said == b""


async def test_sigint_ends_a_watch_in_the_background_of_a_shell(hub: Any, tmp_path: Path) -> None:
    """A shell without job control starts such a job with SIGINT ignored."""

    watch = staying(inbox_pb2.WatchPendingRequestsResponse(synced=common_pb2.WatchSynced()))
    hub.streams["WatchPendingRequests"] = watch
    lines = tmp_path / "lines"
    started = f"mkfifo {lines}; {HUBBUB} --data-dir {hub.data_dir} --json inbox watch >{lines} & exec 3<{lines}"
    done = await ran(f"{started}; read first <&3; kill -INT $!; wait $!")
    assert (done.returncode, done.stderr) == (0, b"")


async def test_an_interrupted_doctor_exits_1(hub: Any, hubbub_process: Any) -> None:
    came = anyio.Event()

    async def reply(_: Any) -> Any:
        came.set()
        await anyio.sleep_forever()

    hub.replies["GetStatus"] = reply
    with anyio.fail_after(60):
        async with await hubbub_process("doctor") as process:
            await came.wait()
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 1
