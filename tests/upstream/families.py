"""Servers that start processes of their own, and what became of these."""

import sys

import anyio
import psutil
import pytest
from mcp.shared.message import SessionMessage

from hubbub_shared import platform
from hubbubd.config.servers.server import ServerConfig
from hubbubd.upstream.stdio.transport import StdioStreams

BOUND_S = 60

of_linux = pytest.mark.skipif(platform.NAME != "linux", reason="only Linux promises it")

CAT = ServerConfig(name="peer", command="cat")
"""A server that sends back what it gets."""

FAMILY = """
import os, signal, sys, time

def announce(role):
    os.write(1, b'{"jsonrpc": "2.0", "method": "born", "params": {"role": "%s", "pid": %d}}\\n' % (role, os.getpid()))

def stay(role, deaf):
    if deaf:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
    announce(role)
    while True:
        time.sleep(600)

deaf = "deaf" in sys.argv
if os.fork() == 0:
    stay(b"child", deaf)
if os.fork() == 0:
    os.setsid()
    stay(b"session", deaf)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/")
        if os.fork() == 0:
            stay(b"daemon's child", deaf)
        stay(b"daemon", deaf)
    os._exit(0)
"""
STAYING = FAMILY + 'stay(b"server", deaf)'
READING = FAMILY + "sys.stdin.read()"
FALLING = FAMILY + "sys.stdin.readline(); os._exit(7)"
OFFSPRING = 4

HUB = """
import sys, anyio
from hubbubd.config.servers.server import ServerConfig
from hubbubd.upstream.stdio.transport import stdio_transport

async def main():
    config = ServerConfig(name="peer", command=sys.executable, args=("-I", "-S", "-c", sys.argv[1], "deaf"))
    async with stdio_transport(config) as streams:
        pids = [streams.pid]
        for _ in range(5):
            pids.append((await streams.read.receive()).message.params["pid"])
        print(*pids, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""
"""A program with one server: its argument, in Python. It prints the pids of the family."""


def peer(script: str, *args: str) -> ServerConfig:
    return ServerConfig(name="peer", command=sys.executable, args=("-I", "-S", "-c", script, *args))


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def parent_of(pid: int) -> int:
    return psutil.Process(pid).ppid()


async def gone(*pids: int) -> None:
    with anyio.fail_after(BOUND_S):
        while any(map(alive, pids)):
            await anyio.sleep(0.005)


async def family(streams: StdioStreams, count: int = OFFSPRING) -> list[int]:
    """The server's process and all it started, alive."""
    pids = [streams.pid]
    with anyio.fail_after(BOUND_S):
        for _ in range(count):
            item = await streams.read.receive()
            assert isinstance(item, SessionMessage)
            pids.append(item.message.model_dump()["params"]["pid"])
    assert all(map(alive, pids))
    return pids
