"""Starts a hub for a data directory, finds the one that runs, and ends it."""

import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

from hubbub_client import numbers
from hubbub_local.platform_dirs import find_data_dir
from hubbub_shared.platform import files, processes, sockets

LOCK: Final = "hubbub.db.lock"
"""The file in the data directory that a running hub holds locked, with its process id in it."""

LOG_VARIABLE: Final = "HUBBUBD_LOG_FILE"
"""The variable that says where a hub writes its log, instead of stderr."""

MAX_PID: Final = 2**31 - 1
"""The largest process id that systems know."""

START_LIMIT_S: Final = 120.0
"""Seconds for a hub to be ready."""

END_LIMIT_S: Final = 120.0
"""Seconds for a hub to end: more than it gives to calls under way and to its servers, unless it is set otherwise."""

POLL_S: Final = 0.05
REPORT_S: Final = 3.0
"""Seconds between the progress reports of `end_hub`."""

SECOND_SIGNAL_S: Final = 0.5
"""Seconds between the two signals by which a hub does without its grace period."""

MAX_OUTPUT_BYTES: Final = 64 * 1024
CONNECT_LIMIT_S: Final = 1.0


class NotStarted(Exception):
    """The hub could not be started; the text says why, in a line for people."""


class NotEnded(Exception):
    """The hub could not be ended; the text says why, in a line for people."""


@dataclass(frozen=True, slots=True)
class Started:
    """A hub that is ready: the ready line that it printed, parsed, and the file of its log."""

    ready: Mapping[str, Any]
    log: Path

    @property
    def pid(self) -> int:
        """The process id."""
        return numbers.whole(self.ready["pid"]) or 0

    @property
    def data_dir(self) -> Path:
        """The data directory; the hub's own configuration may name another than commands look at."""
        return Path(str(self.ready["data_dir"]))


def find_program() -> str | None:
    """Return the path of `hubbubd`: the one installed beside this program, else the one on PATH."""
    beside = Path(sys.executable).with_name("hubbubd")
    return str(beside) if beside.exists() else shutil.which("hubbubd")


def make_command(
    data_dir_option: str | None, *, log: Path | None = None, config: Sequence[str] = (), listen: str | None = None
) -> list[str]:
    """Return the command that starts a hub. Raises NotStarted if `hubbubd` is not installed.

    The data directory is `data_dir_option`, else HUBBUB_DATA_DIR; without either the hub's own configuration decides.
    """
    path = find_program()
    if path is None:
        raise NotStarted("hubbubd is not installed beside this command, nor on PATH: install Hubbub again")
    data_dir = data_dir_option or os.environ.get("HUBBUB_DATA_DIR")
    options = [("--config", each) for each in config]
    options += [("--data-dir", data_dir)] if data_dir else []
    options += [("--listen", listen)] if listen else []
    options += [("--log-file", str(log))] if log else []
    return [path, *(word for option in options for word in option)]


def find_log(data_dir_option: str | None) -> Path:
    """Return where a hub in the background writes its log. Raises Unavailable if this user has no home directory."""
    log_path = os.environ.get(LOG_VARIABLE)
    return Path(log_path).expanduser() if log_path else find_data_dir(data_dir_option).absolute() / "hubbubd.log"


def launch_hub(
    command_line: Sequence[str], *, stdout: int, stderr: int | None, log: Path | None = None
) -> "subprocess.Popen[bytes]":
    """Start a hub and return its process. Raises NotStarted.

    The process has a session of its own, so that the hub goes on when this program ends. `log` goes into
    HUBBUBD_LOG_FILE.
    """
    env = os.environ | ({LOG_VARIABLE: str(log)} if log else {})
    try:
        return subprocess.Popen(  # noqa: S603
            command_line, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True, env=env
        )
    except OSError as error:
        raise NotStarted(f"{command_line[0]} cannot be started: {error.strerror}") from None


def start_hub(
    data_dir_option: str | None,
    *,
    config: Sequence[str] = (),
    listen: str | None = None,
    command_line: Sequence[str] | None = None,
) -> Started:
    """Start a hub in the background and wait until it is ready. Raises NotStarted, and Unavailable as `find_log`.

    `command_line` starts the hub in place of `make_command`'s, and prints the hub's ready line too.
    """
    log = find_log(data_dir_option)
    command_line = command_line or make_command(data_dir_option, log=log, config=config, listen=listen)
    process = launch_hub(command_line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, log=log)
    try:
        ready = _wait_for_ready_line(process, log)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        for pipe in (process.stdout, process.stderr):
            cast("IO[bytes]", pipe).close()
    # The hub goes on. Without a status, Popen would warn that its process still runs.
    process.returncode = 0
    return Started(ready, log)


def _wait_for_ready_line(process: "subprocess.Popen[bytes]", log: Path) -> dict[str, Any]:
    """Return the ready line of a hub that starts. Raises NotStarted with the hub's own message."""
    output = {"stdout": b"", "stderr": b""}
    give_up = time.monotonic() + START_LIMIT_S
    with selectors.DefaultSelector() as reading:
        for name in output:
            reading.register(getattr(process, name), selectors.EVENT_READ, name)
        while reading.get_map():
            events = reading.select(max(give_up - time.monotonic(), 0))
            if not events:
                raise NotStarted(f"the hub is not ready after {START_LIMIT_S:g} s; its log is {log}")
            for key, _ in events:
                chunk = os.read(key.fd, MAX_OUTPUT_BYTES)
                output[key.data] = (output[key.data] + chunk)[-MAX_OUTPUT_BYTES:]
                if not chunk:
                    reading.unregister(key.fileobj)
            if b"\n" in output["stdout"]:
                return cast("dict[str, Any]", json.loads(output["stdout"].partition(b"\n")[0]))
    process.wait()
    *_, last = ["", *output["stderr"].decode(errors="replace").splitlines()]
    raise NotStarted(last.removeprefix("hubbubd: ") or f"the hub ended at once; its log is {log}")


def find_hub_pid(directory: Path) -> int | None:
    """Return the process id of the hub that runs for a data directory; None if none does.

    This is certain: a hub holds a lock from its start to its end, and the system releases the lock of a killed one.
    Raises OSError if the directory may not be read.
    """
    try:
        lock = os.open(directory / LOCK, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        pid = numbers.whole_text(os.read(lock, 20).decode("ascii", "replace").strip(), MAX_PID)
        # Look for the process first: a lock that is tried could stand in the way of a hub that starts.
        if not pid or not processes.is_running(pid):
            return None
        if not files.lock(lock, shared=True):  # the hub has it
            return pid
    finally:
        os.close(lock)
    return None


def end_hub(directory: Path, pid: int, *, now: bool = False) -> Iterator[float]:
    """End the hub with this process id; yield the seconds it has taken, every REPORT_S, until it has ended.

    The pid is that of `find_hub_pid`; if it is not the hub's any more, do nothing. With `now`, calls under way get no
    time to end. Raises NotEnded.
    """
    began_at = last_report_at = time.monotonic()
    second_signal_at = began_at + SECOND_SIGNAL_S if now else None
    with processes.hold_process(pid) as process:
        # While the process is held, its id cannot pass to another one: if it is the hub now, it gets the signals.
        if process is None or find_hub_pid(directory) != pid:
            return
        _terminate_hub(process)
        while not process.wait_for_end(POLL_S):
            at = time.monotonic()
            if second_signal_at is not None and at >= second_signal_at:
                _terminate_hub(process)
                second_signal_at = None
            if at - began_at > END_LIMIT_S:
                message = f"the hub (process {pid}) still ends after {END_LIMIT_S:g} s; `kill -9 {pid}` ends it at once"
                raise NotEnded(message)
            if at - last_report_at >= REPORT_S:
                last_report_at = at
                yield at - began_at


def _terminate_hub(process: processes.HeldProcess) -> None:
    """Send SIGTERM to a hub. Raises NotEnded if it belongs to another user."""
    try:
        process.terminate()
    except PermissionError:
        raise NotEnded(f"the hub (process {process.pid}) belongs to another user, who can end it") from None


def is_listening(directory: Path) -> bool:
    """Return whether something listens at the address in `client.json`; quick, but it may be another program."""
    try:
        address = json.loads((directory / "client.json").read_bytes())["address"]
        if address.startswith("unix:"):
            sockets.try_unix_socket(address.removeprefix("unix:"), CONNECT_LIMIT_S)
            return True
        host, _, port = address.rpartition(":")
        number = numbers.whole_text(port, numbers.LAST_PORT) or 0
        with socket.create_connection((host.strip("[]"), number), CONNECT_LIMIT_S):
            return True
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def is_missing(directory: Path) -> bool:
    """Return whether no hub runs, starts or ends for a data directory on this machine; False if that is not certain."""
    if is_listening(directory):
        return False
    with suppress(OSError):
        return find_hub_pid(directory) is None
    return False
