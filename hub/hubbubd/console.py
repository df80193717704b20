"""What the daemon says where it was started: the ready line, its complaints, and its log.

All that it prints goes through here, and what others wrote through `legible` where a person may read it at a
terminal. JSON is printed as it is, since nothing in it steers a terminal but what `payload` escapes.
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
# Below them each line of a traceback is set in, so that none passes for a line of the log.
INDENT = "    "


LONGEST = 1500
"""Characters of a line; of what is longer the beginning is printed."""

_LONG_WORD = re.compile(r"(\S{200})\S{200,}(\S{50})")
"""What nobody reads: of a value of thousands of characters both ends tell which one it was."""


def say(line: str) -> None:
    """A line for a person, on stdout."""
    sys.stdout.write(f"{_readable(line)}\n")


def ready(line: Mapping[str, Any]) -> None:
    """The one line of JSON on stdout, for whoever has started the daemon."""
    sys.stdout.write(payload.dumps(line).decode() + "\n")
    sys.stdout.flush()


def complain(problem: str) -> None:
    """One line on stderr."""
    sys.stderr.write(f"hubbubd: {_readable(' '.join(problem.split()))}\n")


def _readable(line: str) -> str:
    short = _LONG_WORD.sub(r"\1…\2", line)
    return clean(short if len(short) <= LONGEST else f"{short[:LONGEST]}…")


class Level:
    """The setting `log_level`, which may change after loggers were made."""

    lowest = logging.INFO

    @classmethod
    def set(cls, name: str) -> None:
        """From now on, also for loggers that were made before."""
        cls.lowest = logging.getLevelNamesMapping()[name.upper()]

    @classmethod
    def pass_on(cls, _: object, method: str, event: EventDict) -> EventDict:
        """Drops what is below it."""
        if logging.getLevelNamesMapping()[method.upper()] < cls.lowest:
            raise structlog.DropEvent
        return event


def log_to_stderr(sink: LogSink) -> None:
    """One line per event on stderr: readable on a terminal, JSON elsewhere; and to the sink, as it is there."""
    steps: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        placed,
    ]
    last: list[structlog.typing.Processor] = [structlog.processors.JSONRenderer()]
    if sys.stderr.isatty():
        # Quoted, whatever stands in it: a value cannot pass for a field, nor for an event.
        last = [_legible, structlog.dev.ConsoleRenderer(repr_native_str=True)]
    structlog.configure(
        processors=[Level.pass_on, structlog.contextvars.merge_contextvars, *steps, _redact, sink, *last],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        # Writes a line with its end at once: other threads log to the same place through the bridge below.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries log through the standard library; what they warn of belongs in the same place, in the same form.
    bridge = logging.StreamHandler(sys.stderr)
    one_form = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, _redact, sink, *last]
    bridge.setFormatter(structlog.stdlib.ProcessorFormatter(processors=one_form, foreign_pre_chain=steps))
    logging.basicConfig(level=logging.WARNING, handlers=[bridge], force=True)
    # The SDK writes a traceback, with what was sent, for each message of a server that it cannot read, as often as the
    # server likes. What went wrong is told by the call or the connection that it went wrong for.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    # It warns of each request that is none, and anybody may send those, as many as they like.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)


def _redact(_: object, __: str, event: EventDict) -> EventDict:
    return REDACTION.value(event)


def _legible(_: object, __: str, event: EventDict) -> EventDict:
    """Each text of an event clean: the event itself in one line, a traceback set in."""
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
