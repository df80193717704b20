"""The command line: any words, any environment, any `client.json`, before a hub whose every answer is odd.

All inputs run in this process, since a process for each would take half a second. What only a process has (streams,
signals, a locale) is in tests/clients/test_streams.py.
"""

import asyncio
import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio

from hubbub_cli.run import exit_status, streams
from hubbub_cli.syntax import bounds
from hubbubd.program.app import run as run_daemon

from ..command_tree import whole
from .chance import Chance
from .odd_hub import OddHub
from .subject import Finding, Tally, drive

# Magnitudes for every number, and what is none.
NUMBERS = (
    "0", "-1", "1", "0.5", str(2**31), str(2**53), str(2**63), str(2**64 - 1), "1e308", "1e400", "-1e400", "NaN",
    "Infinity", "", "x", "1_0", "٣", "9" * 5000,
)  # fmt: skip
JSON = (
    "{}", "[]", "null", "{", "NaN", '{"a": NaN}', '{"a": Infinity}', '{"a": 1e999}', '{"a": 1, "a": 2}',
    '{"a": "\\ud800"}', '{"a": ' * 3000 + "1" + "}" * 3000, "[" * 100_000, f'{{"a": {"9" * 5000}}}',
    '{"a": 18446744073709551615}',
    "\ud800", "",
)  # fmt: skip
TEXTS = (
    "",
    " ",
    "x",
    "--",
    "-",
    "é",
    "a\nb",
    "\x1b[31m",
    "\u202e",
    "\ud8ff",
    "\udcff",
    "x" * 5000,
    "..",
    "/dev/null",
    "=",
    "a=",
)
ADDRESSES = (
    "127.0.0.1:1", "127.0.0.1:99999", "127.0.0.1:" + "9" * 5000, ":1", "x", "", "unix:", "unix:x", "unix:" + "x" * 300,
    "[::1]:1", "[fe80::1%eth0]:1", "[::1", "http://", "https://:1", "http://example.com:1",
    "127.0.0.1:1\n", "a\udcff:1",
    "127.0.0.1:٣", "x" * 300 + ".:1",
)  # fmt: skip
TOKENS = ("", "x", "x\n", " x ", "x\ny", "é", "\udcff", "\x01x", "x" * 20_000)
FILES = (
    b"", b"{", b"[]", b"null", b'{"address": 1}', b'{"address": "127.0.0.1:1", "token": 5}', b"[" * 100_000, b"\xff",
    b'{"address": "\\ud800:1", "token": "\\ud800"}', b'{"address": "127.0.0.1:99999"}',
    b'{"address": "127.0.0.1:1", "token": "a\\nb"}', b'{"address": "unix:/\\u0000"}', b'{"address": 1e999}',
)  # fmt: skip
# How the odd hub is reached.
FILES_OF_HUB: list[bytes] = []
# These serve until they are asked to end, or take the screen: tried until they would. tests/web and tests/tui go on.
LASTING = ("web", "tui", "agent")
OF_THE_PERSON = {"config", "init", "up", "down", "service"}
"""What works on files of the person, and starts an editor, the hub or its service: tests/e2e has these."""
OF_A_PROCESS = {("store", "copy"), ("acp",)}
"""They start a process and hear signals, which only a process's own thread can: tests/e2e and tests/acp have them."""

# Their exit status is what they found, which stands on stdout.
VERDICTS = {("doctor",), ("health",), ("mcp", "check"), ("calls", "watch")}
VERDICTS |= {("fleet", each) for each in ("move", "drain", "rotate-key")}
GROUP = "commands"
# A command that waits for a hub to come would wait five seconds for one that never comes.
PATIENCE_S = 0.2


async def command_line(tally: Tally, seed: int, directory: Path) -> None:
    """Runs commands that nobody would type. Each ends as the contract says, without a traceback."""
    made = directory / "made"
    made.mkdir(parents=True, exist_ok=True)
    hub = OddHub(directory)
    await hub.start()
    # gRPC tells this loop of those that the commands have closed. It must not stand on a command's stderr.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    FILES_OF_HUB[:] = [(directory / "client.json").read_bytes()]
    root = whole()
    commands = [each for each in _commands(root, ()) if each[0][0] not in OF_THE_PERSON and each[0] not in OF_A_PROCESS]

    def one(number: int) -> str:
        chance = hub.chance = Chance(seed, "command_line", number)
        if chance.one_in(5):
            return _daemon(chance, directory)
        return _client(chance, root, commands, directory)

    async def apart(number: int) -> str:
        return await anyio.to_thread.run_sync(one, number, abandon_on_cancel=True)

    # What needs the process's own thread, a browser, and time.
    with (
        patch("hubbub_cli.commands.agent.stop_on_signal", _never),
        patch("hubbub_cli.commands.notify.stop_on_signal", _never),
        patch("webbrowser.open", lambda *_: False),
        patch("hubbub_web.server.serve", _started),
        patch("hubbub_tui.app.run", _started),
        patch("hubbub_cli.run.session.DEFAULT_CONNECT_TIMEOUT_S", PATIENCE_S),
        contextlib.chdir(made),  # a name that is tried may become that of a file
    ):
        await drive(tally, apart, width=1, halfway=None)
    await hub.stop()


async def _started(hub: Any, *_: object, **_named: object) -> None:
    """In place of what lasts: it has come as far as to serve, or to take the screen, and asks the hub for something."""
    await hub.admin.status()


class _Screen(io.StringIO):
    """What takes itself for a terminal."""

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def _never() -> Iterator[anyio.Event]:
    yield anyio.Event()


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command of the tree, with the words that name it."""
    found = getattr(command, GROUP, None)
    if not found:
        yield path, command
        return
    for name, inner in found.items():
        yield from _commands(inner, (*path, name))


def _client(chance: Chance, root: Any, commands: list[tuple[tuple[str, ...], Any]], directory: Path) -> str:
    lasting = [each for each in commands if each[0][0] in LASTING]
    path, command = chance.of(lasting if chance.one_in(6) else commands)
    data = directory / f"data{chance.upto(3)}"
    environ = _surroundings(chance, data)
    words = [*_globals(chance, data), *path]
    for parameter in command.params:
        words += _given(chance, parameter, directory)
    if chance.one_in(30):
        words.append(chance.of(TEXTS))
    words, environ = [possible(word) for word in words], {name: possible(value) for name, value in environ.items()}
    status, err = run_client(root, words, environ, terminal=path[0] == "tui" and not chance.one_in(4))
    shown = f"{[word[:80] for word in words]} {environ}"
    as_json = "--json" in words[: [*words, "--"].index("--")]
    return judged(status, err, as_json and tuple(path) not in VERDICTS, shown)


def run_client(root: Any, words: list[str], environ: dict[str, str], *, terminal: bool = False) -> tuple[int, str]:
    """What `main` does, but for what only a process has: the exit status and stderr."""
    out, err = _Screen() if terminal else io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, environ, clear=True),
        patch("sys.stdin", _Screen() if terminal else io.StringIO()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            bounds.clamp_terminal_size()
            streams.check_utf8(words)
            status = root.main(args=words, standalone_mode=False, prog_name="hubbub")
        except BaseException as error:
            own = words[: words.index("--")] if "--" in words else words
            status = exit_status.report_error(error, as_json="--json" in own)
    return (status if isinstance(status, int) else 0), err.getvalue()


def judged(status: int, err: str, as_json: bool, shown: str) -> str:
    """How a command ended. Raises Finding where that is against the contract."""
    if status not in (0, 1, 2) or "Traceback" in err or "INTERNAL" in err:
        raise Finding(f"exit {status}, {err[-600:]!r} for {shown}")
    if not status or not as_json:
        return f"exit {status}"
    try:
        error = json.loads(err.splitlines()[-1])
    except (ValueError, IndexError):
        raise Finding(f"exit {status}, the last line is no JSON: {err[-600:]!r} for {shown}") from None
    if set(error) != {"code", "reason", "message", "metadata"}:
        raise Finding(f"{error} for {shown}")
    return f"{status} {error['reason']}"


def possible(text: str) -> str:
    """The text as a process can be given it: any bytes but NUL, in at most as many as the system takes."""
    return os.fsdecode(text.encode("utf-8", "surrogatepass").replace(b"\x00", b"")[:100_000])


def _surroundings(chance: Chance, data: Path) -> dict[str, str]:
    # What a command writes for the person stays below the directory, also without a home.
    own = {"XDG_CONFIG_HOME": str(data.parent / "config"), "HUBBUBD_CONFIG": str(data.parent / "hubbub.toml")}
    environ = {"HOME": str(data.parent), "PATH": os.environ["PATH"], **own}
    for name, values in (("HUBBUB_ADDRESS", ADDRESSES), ("HUBBUB_TOKEN", TOKENS), ("COLUMNS", NUMBERS)):
        if chance.one_in(10):
            environ[name] = chance.of(values)
    for name in ("HUBBUB_DATA_DIR", "HUBBUB_CA", "TRACEPARENT", "XDG_DATA_HOME", "TERM"):
        if chance.one_in(12):
            environ[name] = chance.of(TEXTS)
    if chance.one_in(20):
        del environ["HOME"]
    data.mkdir(exist_ok=True)
    file = data / "client.json"
    if file.is_dir():
        file.rmdir()
    file.unlink(missing_ok=True)
    if chance.one_in(15):
        file.mkdir()
    elif chance.one_in(15):
        os.mkfifo(file)
    elif not chance.one_in(6):
        file.write_bytes(chance.of(FILES if chance.one_in(4) else FILES_OF_HUB))
    return environ


def _globals(chance: Chance, data: Path) -> list[str]:
    words = [] if chance.one_in(10) else ["--data-dir", str(data)]
    for option, values in (("--address", ADDRESSES), ("--token", TOKENS), ("--as", TEXTS), ("--ca", TEXTS)):
        if chance.one_in(12):
            words += [option, chance.of(values)]
    if chance.one_in(8):
        words += ["--connect-timeout", chance.of(("0", "0.01", "NaN", "-1", "1e400", "x", ""))]
    return words if chance.one_in(3) else [*words, "--json"]


def _given(chance: Chance, parameter: Any, directory: Path) -> list[str]:
    """A value for an argument or an option, or none."""
    option = bool(getattr(parameter, "opts", ())) and parameter.opts[0].startswith("-")
    if option and not (getattr(parameter, "required", False) or chance.one_in(3)):
        return []
    kind = str(getattr(parameter, "type", "")).lower()
    if getattr(parameter, "is_flag", False):
        return [parameter.opts[0]]
    if getattr(parameter, "name", "") == "listen":
        value = chance.of(ADDRESSES)
    elif "int" in kind or "float" in kind:
        value = chance.of(NUMBERS)
    elif any(word in str(getattr(parameter, "name", "")) for word in ("file", "directory", "audit", "rules", "backup")):
        value = chance.of((str(directory / "made" / chance.of(("a", "b"))), "/dev/null", "/proc/x", "\udcff"))
    else:
        value = chance.of(JSON if chance.one_in(2) else TEXTS)
    return [parameter.opts[0], value] if option else [value]


OPTIONS = ("--config", "--listen", "--data-dir", "--check-config", "--version-x", "--mcp", "--metrics-listen")


def _daemon(chance: Chance, directory: Path) -> str:
    """`hubbubd --check-config`, which looks at all that a start does and starts nothing."""
    words = ["--check-config", "--data-dir", str(directory / "hub")]
    while chance.one_in(2):
        words += [chance.of(OPTIONS), chance.of((*ADDRESSES, *TEXTS, *NUMBERS))]
    environ = {"HOME": str(directory), "PATH": os.environ["PATH"]}
    for name in ("LISTEN", "LOG_LEVEL", "CALL_HISTORY_COUNT", "SHUTDOWN_GRACE_S", "MAX_MESSAGE_BYTES", "DATA_DIR"):
        if chance.one_in(4):
            environ[f"HUBBUBD_{name}"] = chance.of((*NUMBERS, *TEXTS, *JSON))
    words, environ = [possible(word) for word in words], {name: possible(value) for name, value in environ.items()}
    if chance.one_in(15):
        del environ["HOME"]
    out, err = io.StringIO(), io.StringIO()
    with patch.dict(os.environ, environ, clear=True), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = run_daemon(words)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except Exception as error:  # a traceback, then
            raise Finding(f"{error!r} for hubbubd {words} {environ}") from error
    if status not in (0, 1, 2) or "Traceback" in err.getvalue():
        raise Finding(f"exit {status}, {err.getvalue()[-500:]!r} for hubbubd {words} {environ}")
    return f"hubbubd {status}"
