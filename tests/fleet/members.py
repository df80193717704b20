"""Three members of a fleet as processes, over one database, with gates before their ways to it and to each other."""

import json
import secrets
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from hubbub_frontend.certs import Authority

from ..e2e.conftest import child, environment, toml
from ..ports import reserved
from .databases import Databases
from .gates import Gate

NAMES = ("a", "b", "c")
LIMIT_S = 60
PLENTY = 1_000_000
KEEP_ALL: dict[str, int] = dict.fromkeys(("call_history_count", "request_history_count", "task_history_count"), PLENTY)
"""What is kept of what has ended, by the hub and for each server."""


@dataclass
class Member:
    """One member; it keeps its ports, its data directory and its gates over all its lives."""

    name: str
    directory: Path
    listen: str
    to_databases: list[Gate]
    to_itself: Gate
    metrics: str = ""
    """Where they are scraped; empty without."""
    process: Process | None = None
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def up(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        """Start it, and return once it is ready."""
        command = [sys.executable, "-m", "hubbubd", "--config", str(self.directory / "hub.toml")]
        log = self.stack.enter_context((self.directory / "log").open("ab"))
        env = environment() | {"MEMBER": self.name}
        self.process = await self.stack.enter_async_context(child(command, stdout=PIPE, stderr=log, env=env))
        assert self.process.stdout is not None
        with anyio.fail_after(LIMIT_S):
            try:
                line = await BufferedByteReceiveStream(self.process.stdout).receive_until(b"\n", 1 << 16)
            except anyio.IncompleteRead:
                raise AssertionError(f"{self.name} has ended:\n{self.log()[-4000:]}") from None
        assert json.loads(line)["event"] == "ready"

    async def kill(self) -> None:
        """End it as kill -9 does."""
        self.process.kill()
        with anyio.fail_after(LIMIT_S):
            await self.process.wait()
        await self.stack.aclose()

    async def terminate(self) -> None:
        """End it as an operator does; it must exit with 0."""
        if self.process is None:
            return
        self.process.terminate()
        with anyio.fail_after(LIMIT_S):
            status = await self.process.wait()
        await self.stack.aclose()
        assert status == 0, f"{self.name} has ended with {status}:\n{self.log()[-4000:]}"

    def stop(self) -> None:
        """Have it stand still."""
        self.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Have it go on."""
        self.process.send_signal(signal.SIGCONT)

    def log(self) -> str:
        """What it has logged in all its lives."""
        return (self.directory / "log").read_text()


@dataclass
class Members:
    """All of them; `token` is good at each."""

    all: dict[str, Member]
    token: str

    def address(self, *names: str) -> str:
        """The addresses of these members, as clients are given them; of all without names."""
        return ",".join(self.all[name].listen for name in names or NAMES)


@asynccontextmanager
async def members(
    directory: Path,
    databases: Databases,
    servers: dict[str, Any],
    *,
    lease_ttl_s: float,
    kept: Mapping[str, int] = KEEP_ALL,
    settings: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
    measured: bool = False,
) -> AsyncGenerator[Members]:
    """Three members that are ready, with these servers in each one's file. They do not outlive the block.

    `settings` are more of the hub's, and `more` further tables; `measured` are those whose metrics can be scraped.
    """
    authority = Authority.open(directory / "certs")
    token = secrets.token_urlsafe(32)
    key = directory / "vault.key"
    key.touch(mode=0o600)
    key.write_text("A" * 43 + "=\n")
    async with AsyncExitStack() as stack:
        made: dict[str, Member] = {}
        for name in NAMES:
            gates = [await stack.enter_async_context(Gate(port).running()) for port in databases.ports]
            listen, forward = stack.enter_context(reserved()), stack.enter_context(reserved())
            to_itself = await stack.enter_async_context(Gate(forward).running())
            metrics = f"127.0.0.1:{stack.enter_context(reserved())}" if measured else ""
            member = made[name] = Member(name, directory / name, f"127.0.0.1:{listen}", gates, to_itself, metrics)
            (member.directory / "data").mkdir(parents=True, mode=0o700)
            client = member.directory / "data" / "client.json"
            client.touch(mode=0o600)
            client.write_text(json.dumps({"address": member.listen, "token": token}))
            pair = authority.issue_member(name)
            hosts = ",".join(f"127.0.0.1:{gate.port}" for gate in gates)
            own = {"listen": member.listen, "data_dir": str(member.directory / "data")}
            own |= {"metrics_listen": metrics} if measured else {}
            tables = {
                "hub": {**own, **kept, **(settings or {})},
                "store": {"url": f"postgresql://hubbub@{hosts}/postgres?target_session_attrs=read-write"},
                "fleet": {
                    "name": name,
                    "listen": f"127.0.0.1:{forward}",
                    "reached_at": f"127.0.0.1:{to_itself.port}",
                    "ca": str(authority.file),
                    "cert": str(pair.cert),
                    "key": str(pair.key),
                    "vault_key_file": str(key),
                    "lease_ttl_s": lease_ttl_s,
                },
                "servers": {each: {**kept, **options} for each, options in servers.items()},
                **(more or {}),
            }
            (member.directory / "hub.toml").write_text(toml(tables))
        for member in made.values():
            await stack.enter_async_context(member.stack)
        async with anyio.create_task_group() as starting:
            for member in made.values():
                starting.start_soon(member.start)
        yield Members(made, token)
