"""The daemon's output: the ready line, error lines, and the log (structlog to stderr).

Everything printed goes through here, and text from others through `legible` where a person may read it at a terminal,
against terminal escape injection. JSON is printed as it is: `payload` escapes what could steer a terminal.
"""

import logging
import re
import sys
from collections.abc import Mapping
from typing import Any, cast

import structlog

from hubbubd import payload
from hubbubd.legible import clean
from hubbubd.redaction import REDACTION
from hubbubd.telemetry.logs import LogSink, placed

EventDict = structlog.typing.EventDict
# Indent of traceback lines, so that none can pass for a line of the log.
INDENT = "    "


LONGEST = 1500
"""Longest line in characters; the rest is cut off."""

_LONG_WORD = re.compile(r"(\S{200})\S{200,}(\S{50})")
"""A very long word, of which the beginning and the end are printed."""


def say(line: str) -> None:
    """Print a line for a person on stdout."""
    sys.stdout.write(f"{_readable(line)}\n")


def ready(line: Mapping[str, Any]) -> None:
    """Print the one line of JSON on stdout that tells a supervisor or test that the hub is ready."""
    sys.stdout.write(payload.dumps(line).decode() + "\n")
    sys.stdout.flush()


def complain(problem: str) -> None:
    """Print one error line on stderr."""
    sys.stderr.write(f"hubbubd: {_readable(' '.join(problem.split()))}\n")


def _readable(line: str) -> str:
    short = _LONG_WORD.sub(r"\1…\2", line)
    return clean(short if len(short) <= LONGEST else f"{short[:LONGEST]}…")


LEVELS = {name.lower(): level for name, level in logging.getLevelNamesMapping().items()}
"""Levels by the names of the methods that log at them."""


class Level:
    """The setting `log_level`, which can change after loggers were created."""

    lowest = logging.INFO

    @classmethod
    def set(cls, name: str) -> None:
        """Set the level, for existing loggers too."""
        cls.lowest = logging.getLevelNamesMapping()[name.upper()]

    @classmethod
    def pass_on(cls, _: object, method: str, event: EventDict) -> EventDict:
        """Structlog processor: drop events below the level."""
        if LEVELS[method] < cls.lowest:
            raise structlog.DropEvent
        return event


def log_to_stderr(sink: LogSink) -> None:
    """Configure logging: one line per event on stderr, for people on a terminal and else JSON; and to the sink."""
    steps: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        placed,
    ]
    last: list[structlog.typing.Processor] = [structlog.processors.JSONRenderer()]
    if sys.stderr.isatty():
        # repr() quotes strings, so that a value cannot pass for a key or an event.
        last = [_legible, structlog.dev.ConsoleRenderer(repr_native_str=True)]
    structlog.configure(
        processors=[Level.pass_on, structlog.contextvars.merge_contextvars, *steps, _redact, sink, *last],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        # WriteLogger writes line and newline in one call: other threads write to stderr through the bridge below.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries log through the standard library; their warnings get the same destination and form.
    bridge = logging.StreamHandler(sys.stderr)
    one_form = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, _redact, sink, *last]
    bridge.setFormatter(structlog.stdlib.ProcessorFormatter(processors=one_form, foreign_pre_chain=steps))
    logging.basicConfig(level=logging.WARNING, handlers=[bridge], force=True)
    # The MCP SDK logs a traceback, payload included, for each message it cannot parse, as often as a server likes.
    # The fault of the call or connection tells the same.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    # uvicorn warns of each malformed request, and anybody may send as many as they like.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)


def _redact(_: object, __: str, event: EventDict) -> EventDict:
    return REDACTION.value(event)


def _legible(_: object, __: str, event: EventDict) -> EventDict:
    """Structlog processor: clean all text for a terminal; the event in one line, tracebacks indented."""
    found = cast("EventDict", _clean(event))
    found["event"] = " ".join(str(found.get("event", "")).splitlines())
    for name in ("exception", "stack"):
        if isinstance(text := found.get(name), str):
            found[name] = "\n".join(INDENT + line for line in text.splitlines())
    return found


def _word(key: object) -> str:
    return " ".join(clean(str(key)).splitlines())


def _clean(value: Any) -> Any:
    match value:
        case Mapping():
            return {_word(key): _clean(each) for key, each in cast("Mapping[Any, Any]", value).items()}
        case list() | tuple() | set() | frozenset():
            return [_clean(each) for each in cast("list[Any]", value)]
        case bool() | int() | float() | None:
            return value
        case _:
            return clean(str(value))
