"""Imports what the processes of the tests need, and forks them: server.py ADDRESS, to the end of its stdin."""

import atexit
import gc
import io
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

# As the programs do before they import gRPC.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import anyio._backends._asyncio
import mcp.server.mcpserver
import mcp.server.stdio
import pydantic
import uvicorn
import uvloop
from wire import status_of, taken

import hubbub_cli.app
import hubbub_cli.run.exit_status

# What the programs import when they need it.
import hubbub_cli.terminal.answer
import hubbub_cli.terminal.claimed_answer
import hubbub_cli.terminal.live_call
import hubbub_cli.tree
import hubbubd.program.app
import hubbubd.rpc.auth.certificates
import hubbubd.rpc.auth.jwt
import hubbubd.upstream.http.transports
import hubbubd.upstream.links.opener

IMPORTED = (anyio, hubbub_cli, hubbubd, mcp, pydantic, uvicorn, uvloop)
BIN = Path(sys.executable).parent


class Forks:
    """The processes that run, and who waits for each."""

    def __init__(self, address: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(address)
        self._listening.listen(100)
        self._on(self._listening, self._asked)
        self._on(0, self._close)
        self._waiting: dict[int, tuple[socket.socket, int]] = {}
        self._begun: Callable[[], None] | None = None

    def serve(self) -> Callable[[], None]:
        """Goes on until there is a child: what that has to do. Only a child returns."""
        while True:
            for key, _ in self._selector.select():
                key.data()
                if self._begun is not None:  # what else has happened is the fork server's
                    return self._begun

    def _close(self) -> None:
        """Nobody is there any more who could want a process."""
        for _, process in self._waiting.values():
            signal.pidfd_send_signal(process, signal.SIGKILL)
        os._exit(0)

    def _on(self, source: Any, then: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, then)

    def _asked(self) -> None:
        way, _ = self._listening.accept()
        packet = taken(way)
        if packet is None:
            way.close()
            return
        wanted, descriptors = packet
        pid = os.fork()
        if not pid:
            self._begun = lambda: begin(wanted)
            self._leave(way, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        process = os.pidfd_open(pid)
        self._waiting[pid] = way, process
        self._on(process, lambda: self._ended(pid))
        self._on(way, lambda: self._left(pid))
        try:
            socket.send_fds(way, [str(pid).encode()], [process])
        except OSError:
            self._left(pid)

    def _leave(self, way: socket.socket, descriptors: list[int]) -> None:
        """In the child: nothing of the fork server's stays open."""
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
        for descriptor in {*descriptors} - {0, 1, 2}:
            os.close(descriptor)
        for other, process in self._waiting.values():
            other.close()
            os.close(process)
        self._selector.close()
        self._listening.close()
        way.close()

    def _ended(self, pid: int) -> None:
        way, process = self._waiting.pop(pid)
        for source in (way, process):
            if source in self._selector.get_map():
                self._selector.unregister(source)
        status = status_of(os.waitpid(pid, 0)[1])
        with suppress(OSError):  # nobody waits for it any more
            way.send(str(status).encode())
        way.close()
        os.close(process)

    def _left(self, pid: int) -> None:
        if pid not in self._waiting:  # it has ended in the same moment
            return
        way, process = self._waiting[pid]
        if way in self._selector.get_map():
            self._selector.unregister(way)
        signal.pidfd_send_signal(process, signal.SIGKILL)


def begin(wanted: dict[str, Any]) -> None:
    """Does what Python does between its imports and the first line of a program, and then the program."""
    os.environ.clear()
    os.environ.update(wanted["env"])
    time.tzset()
    os.chdir(wanted["cwd"])
    sys.stdin, sys.stdout, sys.stderr = stream(0), stream(1), stream(2)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    program, arguments = wanted["program"], wanted["arguments"]
    if program == "hubbubd":
        sys.path[0] = wanted["cwd"]
        sys.argv = [str(BIN / "hubbubd"), *arguments]
        runpy.run_module("hubbubd", run_name="__main__", alter_sys=True)
    elif program == "hubbub":
        sys.path[0] = str(BIN)
        sys.argv = [str(BIN / "hubbub"), *arguments]
        from hubbub_cli import main

        sys.exit(main())
    else:
        sys.path[0] = str(Path(program).parent)
        sys.argv = [program, *arguments]
        runpy.run_path(program, run_name="__main__")


def finish(begun: Callable[[], None]) -> None:
    """Carries a program out to its end. What was imported is not taken apart: that would copy every page of it."""
    try:
        begun()
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        status = ended.code or 0
    else:
        status = 0
    threading._shutdown()  # waits for threads, as Python does before it says goodbye
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:
        sys.exit(status)  # Python has words of its own for a stream that cannot be written
    os._exit(status)


def stream(descriptor: int) -> io.TextIOWrapper:
    """A standard stream, as Python opens it."""
    model = (sys.stdin, sys.stdout, sys.stderr)[descriptor]
    raw = io.FileIO(descriptor, "r" if descriptor == 0 else "w", closefd=False)
    binary = io.BufferedReader(raw) if descriptor == 0 else io.BufferedWriter(raw)
    return io.TextIOWrapper(
        binary, encoding=model.encoding, errors=model.errors, line_buffering=descriptor == 2 or raw.isatty()
    )


for command in hubbub_cli.tree.COMMANDS:
    command.load()
gc.collect()
gc.freeze()
assert len(list(Path("/proc/self/task").iterdir())) == 1, "a process with threads cannot be forked"
forks = Forks(sys.argv[1])
print("ready", flush=True)
finish(forks.serve())
