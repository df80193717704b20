"""The stdio transport against real processes, on both event loops."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc

from hubbubd.config.servers.server import ServerConfig
from hubbubd.errors import Category, UpstreamError
from hubbubd.upstream.messages.codec import NotParsed
from hubbubd.upstream.stdio.transport import BadMessage, ExitStatus, StdioStreams, stdio_transport

BOUND_S = 60

ECHO = """
import sys, json
for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": message.get("params", {})}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture(scope="module", params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


def peer(script: str, *args: str, **options: Any) -> ServerConfig:
    return ServerConfig(name="peer", command=sys.executable, args=("-I", "-S", "-c", script, *args), **options)


def request(number: int, **params: Any) -> SessionMessage:
    return SessionMessage(jsonrpc.JSONRPCRequest(jsonrpc="2.0", id=number, method="echo", params=params))


async def received(streams: StdioStreams) -> jsonrpc.JSONRPCMessage:
    with anyio.fail_after(BOUND_S):
        item = await streams.read.receive()
    assert isinstance(item, SessionMessage), item
    return item.message


async def ended(streams: StdioStreams) -> list[SessionMessage | Exception]:
    """Everything until the stream ends."""
    with anyio.fail_after(BOUND_S):
        return [item async for item in streams.read]


async def stderr_line(streams: StdioStreams, wanted: str) -> None:
    with anyio.fail_after(BOUND_S):
        while wanted not in streams.stderr_tail():
            await anyio.sleep(0.001)


async def test_a_request_reaches_the_server_and_its_answer_comes_back() -> None:
    async with stdio_transport(peer(ECHO)) as streams:
        for number in range(3):
            await streams.write.send(request(number, text="grüß\n\u2028 dich", big=2**60))
            answer = await received(streams)
            assert isinstance(answer, jsonrpc.JSONRPCResponse)
            assert (answer.id, answer.result) == (number, {"text": "grüß\n\u2028 dich", "big": 2**60})
        assert Path(f"/proc/{streams.pid}/cmdline").read_bytes().split(b"\0")[4] == ECHO.encode()


async def test_a_flooding_server_leaves_the_loop_to_others() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await anyio.sleep(0)
            turns += 1

    flood = 'while True: print(\'{"jsonrpc": "2.0", "method": "note"}\')'
    async with stdio_transport(peer(flood)) as streams, anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        for _ in range(20_000):
            await received(streams)
        os.kill(streams.pid, signal.SIGKILL)
        tasks.cancel_scope.cancel()
    assert turns >= 20_000 / 64


async def test_a_server_that_nobody_listens_to_waits() -> None:
    script = """
import os, select, sys
written = 0
while written < 20_000_000 and select.select([], [1], [], 0.5)[1]:
    written += os.write(1, b'{"jsonrpc": "2.0", "method": "note"}\\n' * 100)
sys.stderr.write(f"{written}\\n")
"""
    async with stdio_transport(peer(script)) as streams:
        with anyio.fail_after(BOUND_S):
            while not streams.stderr_tail():
                await anyio.sleep(0.001)
        assert int(streams.stderr_tail()[0]) < 1_000_000


async def test_lines_that_are_not_json_are_counted_and_passed_over() -> None:
    script = r"""
import os
os.write(1, b'Listening...\n\n\xff\xfe\n{"jsonrpc": "2.0", "method": "\xff"}\nNaN\n')
os.write(1, b'{"jsonrpc": "2.0", "method": "note"}\r\n')
"""
    async with stdio_transport(peer(script)) as streams:
        assert await received(streams) == jsonrpc.JSONRPCNotification(jsonrpc="2.0", method="note")
        assert await ended(streams) == []
        assert (streams.stray_lines, streams.unparseable, streams.fault) == (5, 0, None)


async def test_json_that_is_no_message_is_shown_in_its_place() -> None:
    script = """print('{"jsonrpc": "2.0", "id": 4, "result": 1}\\n[]\\n{"jsonrpc": "2.0", "method": "note"}')"""
    async with stdio_transport(peer(script)) as streams:
        first, second, third = await ended(streams)
        assert isinstance(first, BadMessage)
        assert first.answered_ids == (4,)
        assert isinstance(second, BadMessage)
        assert isinstance(third, SessionMessage)
        assert (streams.stray_lines, streams.unparseable, streams.fault) == (0, 2, None)


async def test_a_server_that_writes_json_of_another_kind_is_given_up() -> None:
    async with stdio_transport(peer('while True: print(\'{"level": "info"}\')')) as streams:
        assert await ended(streams) == []
        assert (streams.stray_lines, streams.unparseable) == (1000, 0)
        assert streams.fault
        assert streams.fault.code == "INVALID_RESPONSE"
        os.kill(streams.pid, signal.SIGKILL)


async def test_a_line_over_the_limit_is_skipped_and_shown_in_its_place() -> None:
    script = """
import sys
print('{"jsonrpc": "2.0", "method": "' + "x" * 1_000_000 + '"}')
note = '{"jsonrpc": "2.0", "method": "note", "params": {"x": "%s"}}'
print(note % ("x" * (2048 - len(note) + 2)))
print(note % ("x" * (2049 - len(note) + 2)))
print(note % "end")
"""
    async with stdio_transport(peer(script, max_message_bytes=2048)) as streams:
        kinds = [type(item) for item in await ended(streams)]
        assert kinds == [BadMessage, SessionMessage, NotParsed, SessionMessage]
        assert streams.stray_lines == 0


async def test_a_signal_that_ended_the_server_is_told() -> None:
    async with stdio_transport(peer("import os; os.kill(os.getpid(), 6)")) as streams:
        with anyio.fail_after(BOUND_S):
            assert await streams.wait_exit() == ExitStatus(signal=signal.SIGABRT)


async def test_of_stderr_only_the_end_is_kept() -> None:
    script = (
        "import sys\nfor n in range(300): sys.stderr.write(f'{n} ' + 'ü' * 9000 + '\\n')\nsys.stderr.write('end\\n')"
    )
    async with stdio_transport(peer(script)) as streams:
        await stderr_line(streams, "end")
        tail = streams.stderr_tail()
        assert len(tail) == 50
        assert [line.split()[0] for line in tail] == [*map(str, range(251, 300)), "end"]
        assert {len(line) for line in tail[:-1]} == {2000}


async def test_the_server_gets_a_small_environment_and_its_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    passed_on = {"TERM": "dumb", "LC_TIME": "C", "TZ": "UTC"}
    secrets = (
        "SECRET_OF_THE_HUB",
        "HUBBUB_TOKEN",
        "HUBBUBD_LISTEN",
        "OTEL_EXPORTER_OTLP_HEADERS",
        "AWS_SECRET_ACCESS_KEY",
    )
    kept_back = {**dict.fromkeys((*secrets, "LD_PRELOAD_"), "x"), "https_proxy": "http://ada:hush@proxy.example"}
    for name, value in (passed_on | kept_back).items():
        monkeypatch.setenv(name, value)
    script = """
import os, json
print(json.dumps({"jsonrpc": "2.0", "method": "note", "params": dict(os.environ)}))
"""
    own = {"KEY": "a=b\nc ü", "LD_LIBRARY_PATH": "/nowhere", "PYTHONHOME": "/nowhere", "EMPTY": ""}
    async with stdio_transport(peer(script, env=own)) as streams:
        note = await received(streams)
    assert isinstance(note, jsonrpc.JSONRPCNotification)
    assert note.params
    inherited = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "TZ", "USER", "LANG", "LC_ALL", "LC_TIME"}
    assert note.params.keys() - inherited - {"LC_CTYPE"} == own.keys() | {"HUBBUB_CONNECTION"}
    assert (own | passed_on).items() <= note.params.items()


async def test_the_command_is_looked_up_on_the_servers_path_and_runs_in_its_directory(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "served").write_text('#!/bin/sh\necho "{\\"jsonrpc\\": \\"2.0\\", \\"method\\": \\"$(pwd) $1\\"}"\n')
    (tools / "served").chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    config = ServerConfig(name="peer", command="served", args=("ü ö",), cwd=str(tmp_path), env={"PATH": path})
    async with stdio_transport(config) as streams:
        note = await received(streams)
    assert note == jsonrpc.JSONRPCNotification(jsonrpc="2.0", method=f"{tmp_path} ü ö")


@pytest.mark.parametrize(
    ("options", "code", "retryable"),
    [
        ({"command": "no-such-command"}, "COMMAND_NOT_FOUND", False),
        ({"command": "/no/such/command"}, "COMMAND_NOT_FOUND", False),
        ({"command": "/dev/null"}, "COMMAND_NOT_EXECUTABLE", False),
        ({"command": "cat", "cwd": "/no/such/place"}, "WORKING_DIRECTORY_INVALID", False),
        ({"command": "cat", "cwd": "/dev/null"}, "WORKING_DIRECTORY_INVALID", False),
        ({"command": "cat", "args": ["x" * 3_000_000]}, "START_FAILED", True),
        ({"command": "cat", "args": ["\0"]}, "START_FAILED", False),
        ({"command": "cat", "env": {"A=B": "x"}}, "START_FAILED", False),
    ],
)
async def test_a_command_that_does_not_start_is_a_classified_error(
    options: dict[str, Any], code: str, retryable: bool
) -> None:
    with anyio.fail_after(BOUND_S), pytest.raises(UpstreamError) as caught:
        async with stdio_transport(ServerConfig(name="peer", **options)):
            pass
    fault = caught.value.fault
    assert (fault.code, fault.category, fault.retryable) == (code, Category.CONNECTION, retryable)
    assert fault.details["command"] == options["command"]
    assert fault.details["error"]


RELUCTANT = (
    """
import signal, sys, os
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
sys.stderr.write("not reading\\n")
sys.stderr.flush()
signal.sigwait([signal.SIGUSR1])
"""
    + ECHO
)


async def test_a_server_that_does_not_read_holds_only_its_sender() -> None:
    async with stdio_transport(peer(RELUCTANT)) as streams, anyio.create_task_group() as tasks:
        await stderr_line(streams, "not reading")
        tasks.start_soon(streams.write.send, request(1, text="x" * 500_000))
        await anyio.wait_all_tasks_blocked()
        os.kill(streams.pid, signal.SIGUSR1)
        answer = await received(streams)
        assert answer.model_dump()["id"] == 1


async def test_a_send_that_is_cancelled_half_way_tears_no_line() -> None:
    async with stdio_transport(peer(RELUCTANT)) as streams:
        await stderr_line(streams, "not reading")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(streams.write.send, request(1, text="x" * 500_000))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(streams.write.send, request(2))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        os.kill(streams.pid, signal.SIGUSR1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(streams.write.send, request(3))
            ids = [(await received(streams)).model_dump()["id"] for _ in range(2)]
        assert ids == [1, 3]


async def test_closing_frees_a_sender_that_waits_for_a_server_that_does_not_read() -> None:
    freed: list[Exception] = []

    async def send(streams: StdioStreams) -> None:
        try:
            await streams.write.send(request(1, text="x" * 500_000))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as exc:
            freed.append(exc)

    async with anyio.create_task_group() as tasks, stdio_transport(peer(RELUCTANT)) as streams:
        await stderr_line(streams, "not reading")
        tasks.start_soon(send, streams)
        await anyio.wait_all_tasks_blocked()
        os.kill(streams.pid, signal.SIGKILL)
    assert len(freed) == 1


async def test_a_server_that_closes_its_stdin_is_lost_after_its_last_message() -> None:
    script = """
import os, sys, time
os.close(0)
print('{"jsonrpc": "2.0", "method": "bye"}', flush=True)
sys.stderr.write("deaf\\n")
sys.stderr.flush()
time.sleep(600)
"""
    async with stdio_transport(peer(script)) as streams:
        await stderr_line(streams, "deaf")
        with pytest.raises(anyio.BrokenResourceError):
            await streams.write.send(request(1))
        assert [type(item) for item in await ended(streams)] == [SessionMessage]
        os.kill(streams.pid, signal.SIGKILL)


async def test_a_sender_that_waits_learns_that_the_server_closed_its_stdin() -> None:
    script = """
import os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
sys.stderr.write("not reading\\n")
sys.stderr.flush()
signal.sigwait([signal.SIGUSR1])
os.close(0)
signal.sigwait([signal.SIGUSR1])
"""
    async with stdio_transport(peer(script)) as streams, anyio.create_task_group() as tasks:
        await stderr_line(streams, "not reading")

        async def send() -> None:
            with pytest.raises(anyio.BrokenResourceError), anyio.fail_after(BOUND_S):
                await streams.write.send(request(1, text="x" * 500_000))
            os.kill(streams.pid, signal.SIGUSR1)

        tasks.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        os.kill(streams.pid, signal.SIGUSR1)
        assert await ended(streams) == []


async def test_after_closing_both_directions_say_so() -> None:
    async with stdio_transport(peer(ECHO)) as streams:
        pass
    with pytest.raises(anyio.ClosedResourceError):
        await streams.write.send(request(1))
    with pytest.raises(anyio.ClosedResourceError):
        await streams.read.receive()
    assert await streams.wait_exit() == ExitStatus(code=0)


async def test_an_error_inside_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with stdio_transport(peer(ECHO)):
            raise ZeroDivisionError


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> set[int]:
    threads = Path("/proc/self/task").iterdir()
    return {int(pid) for thread in threads for pid in (thread / "children").read_text().split()}


async def test_opening_and_closing_leaves_no_descriptor_and_no_process() -> None:
    async with stdio_transport(peer(ECHO)):
        pass
    before, own = descriptors(), children()
    for _ in range(20):
        async with stdio_transport(peer(ECHO)) as streams:
            await streams.write.send(request(1))
            await received(streams)
    with pytest.raises(UpstreamError):
        async with stdio_transport(ServerConfig(name="peer", command="no-such-command")):
            pass
    assert (descriptors(), children()) == (before, own)


async def test_giving_up_while_it_starts_leaves_no_descriptor_and_no_process() -> None:
    async with stdio_transport(peer(ECHO)):
        pass
    before, own = descriptors(), children()
    for milliseconds in range(0, 40, 2):
        with anyio.move_on_after(milliseconds / 1000):
            async with stdio_transport(peer("input()")) as streams:
                await streams.read.receive()
    assert (descriptors(), children()) == (before, own)
