"""The daemon's output: the ready line, error lines, and the log (structlog to stderr).

Everything printed goes through here, and text from others through `legible` where a person may read it at a terminal,
against terminal escape injection. JSON is printed as it is: `payload` escapes what could steer a terminal.
"""

import logging
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO, cast

import structlog

from hubbub_shared.legible import clean
from hubbubd import payload
from hubbubd.config import HubSettings
from hubbubd.process.log_file import RotatedLog
from hubbubd.redaction import REDACTION
from hubbubd.telemetry.logs import LogSink, add_trace_ids

EventDict = structlog.typing.EventDict
# Indent of traceback lines, so that none can pass for a line of the log.
INDENT = "    "


MAX_LINE_CHARS = 1500
"""Characters of a line; the rest is cut off."""

_LONG_WORD = re.compile(r"(\S{200})\S{200,}(\S{50})")
"""A very long word, of which only the first 200 and the last 50 characters are printed."""


MISSING_FILE = " (not there yet; read as soon as it is)"


def print_line(line: str) -> None:
    """Print a line for a person on stdout."""
    sys.stdout.write(f"{_shorten_and_clean(line)}\n")


def print_json_line(line: Mapping[str, Any]) -> None:
    """Print a line of JSON on stdout, for a supervisor or a test: that the hub is ready, or what a copy has done."""
    sys.stdout.write(payload.dumps(line).decode() + "\n")
    sys.stdout.flush()


def is_at_terminal() -> bool:
    """Return whether a person, not a program, reads the output: stdout and stderr are both a terminal."""
    return sys.stdout.isatty() and sys.stderr.isatty()


def print_welcome(
    addresses: Mapping[str, str | None], settings: HubSettings, files: Sequence[Path], *, has_no_servers: bool
) -> None:
    """Print on stderr where the hub serves and stores, for a person who has started it by hand.

    `addresses` has the address of each protocol, by its name (`grpc` is always there); None where it is not served.
    With `has_no_servers` the first steps are printed, too.
    """
    command = shlex.join(["hubbub", "--data-dir", str(settings.data_dir)])
    rows = [
        *((name, address) for name, address in addresses.items() if address is not None and name != "grpc"),
        *(("configuration", f"{file}{'' if file.exists() else MISSING_FILE}") for file in files),
        ("data", settings.data_dir),
        *([("log", settings.log_file)] if settings.log_file is not None else []),
    ]
    first_steps = (
        f"No servers yet. Take over those you have: {command} init. Add one: {command} servers add NAME -- COMMAND"
    )
    print_notice(
        [
            f"Hubbub serves its API at {addresses['grpc']}, process {os.getpid()}. Ctrl-C ends it.",
            *(f"  {name:14} {value}" for name, value in rows),
            *([first_steps] if has_no_servers else []),
        ]
    )


def print_notice(lines: Iterable[str]) -> None:
    """Print lines for a person on stderr."""
    sys.stderr.write("".join(f"{_shorten_and_clean(line)}\n" for line in lines))
    sys.stderr.flush()


def print_error(problem: str) -> None:
    """Print one error line on stderr."""
    sys.stderr.write(f"hubbubd: {_shorten_and_clean(' '.join(problem.split()))}\n")


def _shorten_and_clean(line: str) -> str:
    """Return a line without escape sequences, with very long words shortened, and cut after MAX_LINE_CHARS."""
    short = _LONG_WORD.sub(r"\1…\2", line)
    return clean(short if len(short) <= MAX_LINE_CHARS else f"{short[:MAX_LINE_CHARS]}…")


LEVELS = {name.lower(): level for name, level in logging.getLevelNamesMapping().items()}
"""Levels by the names of the methods that log at them."""


_HubLogger: Any = type("_HubLogger", (structlog.make_filtering_bound_logger(logging.INFO),), {})
"""The class of all loggers; its methods for levels below `log_level` do nothing."""


def set_log_level(name: str) -> None:
    """Apply the setting `log_level`, to existing loggers too."""
    filtering = structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[name.upper()])
    for method, function in vars(filtering).items():
        if not method.startswith("__"):
            setattr(_HubLogger, method, function)


class LineWriter(Protocol):
    """Where lines of the log are written."""

    def write(self, line: str, /) -> object:
        """Write a line, which includes its line end."""
        ...

    def flush(self) -> None:
        """Write lines that are still buffered."""
        ...


def configure_logging(file: Path | None, sink: LogSink) -> None:
    """Configure logging: one line per event on stderr, as text on a terminal and otherwise as JSON; and to the sink.

    With a file, all lines go there as JSON, and stderr gets only warnings, if it is a terminal. Raises OSError.
    """
    text_renderers: list[structlog.typing.Processor] = [
        _make_legible,
        structlog.dev.ConsoleRenderer(repr_native_str=True),
    ]
    if file is not None:
        warning_printers = [_WarningPrinter(text_renderers)] if sys.stderr.isatty() else []
        _LogFile.log = RotatedLog(file)
        _configure_structlog(_LogFile.log, [*warning_printers, structlog.processors.JSONRenderer()], sink)
    elif sys.stderr.isatty():
        # repr() quotes strings, so that a value cannot pass for a key or an event.
        _configure_structlog(sys.stderr, text_renderers, sink)
    else:
        _configure_structlog(sys.stderr, [structlog.processors.JSONRenderer()], sink)


def redirect_stderr_to_log_file() -> None:
    """Redirect stderr to the log file, if there is one, unless stderr is a terminal: its reader may have ended."""
    if _LogFile.log is not None and not sys.stderr.isatty():
        _LogFile.log.redirect_stderr()


class _LogFile:
    """The log file of the process, once `configure_logging` has opened one."""

    log: RotatedLog | None = None


class _WarningPrinter:
    """Structlog processor: print warnings and errors on stderr, too."""

    def __init__(self, text_renderers: list[structlog.typing.Processor]) -> None:
        self._text_renderers = text_renderers

    def __call__(self, logger: object, method: str, event: EventDict) -> EventDict:
        """Print the event if it is a warning or worse, and return it unchanged for the next processor."""
        # A method that is no level, such as `exception`, counts as an error.
        if LEVELS.get(method, logging.ERROR) >= logging.WARNING:
            line: Any = dict(event)
            for render in self._text_renderers:
                line = render(logger, method, line)
            sys.stderr.write(f"{line}\n")
        return event


def _configure_structlog(writer: LineWriter, renderers: list[structlog.typing.Processor], sink: LogSink) -> None:
    """Make structlog and `logging` redact each event, pass it to the sink, render it, and write it to the writer."""
    shared_processors: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        add_trace_ids,
    ]
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, *shared_processors, _redact, sink, *renderers],
        wrapper_class=_HubLogger,
        # WriteLogger writes line and newline in one call: other threads write through the handler below.
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", writer)),
        cache_logger_on_first_use=True,
    )
    # Libraries log through the standard library; their warnings get the same destination and form.
    library_handler = logging.StreamHandler(writer)
    library_processors = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, _redact, sink, *renderers]
    library_handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(processors=library_processors, foreign_pre_chain=shared_processors)
    )
    logging.basicConfig(level=logging.WARNING, handlers=[library_handler], force=True)
    # The MCP SDK logs a traceback, payload included, for each message it cannot parse, as often as a server likes.
    # The fault of the call or connection has the same information.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    # uvicorn warns of each malformed request, and anybody may send as many as they like.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)


def _redact(_: object, __: str, event: EventDict) -> EventDict:
    """Structlog processor: replace known secrets."""
    return REDACTION.redact_value(event)


def _make_legible(_: object, __: str, event: EventDict) -> EventDict:
    """Structlog processor: clean all text for a terminal, join the event to one line, and indent tracebacks."""
    cleaned = cast("EventDict", _clean_value(event))
    cleaned["event"] = " ".join(str(cleaned.get("event", "")).splitlines())
    for name in ("exception", "stack"):
        if isinstance(text := cleaned.get(name), str):
            cleaned[name] = "\n".join(INDENT + line for line in text.splitlines())
    return cleaned


def _clean_key(key: object) -> str:
    """Return a key of the log cleaned for a terminal, in one line."""
    return " ".join(clean(str(key)).splitlines())


def _clean_value(value: Any) -> Any:
    """Return a value of the log with all text in it cleaned for a terminal."""
    match value:
        case Mapping():
            return {_clean_key(key): _clean_value(each) for key, each in cast("Mapping[Any, Any]", value).items()}
        case list() | tuple() | set() | frozenset():
            return [_clean_value(each) for each in cast("list[Any]", value)]
        case bool() | int() | float() | None:
            return value
        case _:
            return clean(str(value))
