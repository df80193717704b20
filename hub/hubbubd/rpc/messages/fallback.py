"""Converters that never fail: one record that does not fit its message must not break a list or a watch."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast, get_type_hints

import structlog
from google.protobuf.message import Message

from hubbubd import bounds
from hubbubd.rpc.messages.values import text

T = TypeVar("T")
M = TypeVar("M", bound=Message)
P = ParamSpec("P")

NAMES = ("id", "name", "server", "call_id")
"""Fields shown of a record of which nothing else can be."""

log = structlog.get_logger(__name__)


def never_failing(convert: Callable[Concatenate[T, P], M]) -> Callable[Concatenate[T, P], M]:
    """Return a converter that never fails: it shows what it can of any record, and sets `defect` if the message has it.

    Only if the conversion fails, the record's values are clamped to the API's bounds and converted again.
    """

    @wraps(convert)
    def convert_safely(record: T, *args: P.args, **options: P.kwargs) -> M:
        """Convert the record; if that fails, convert it clamped, and at last show only its names."""
        try:
            return convert(record, *args, **options)
        except Exception as exc:  # noqa: BLE001 - whatever is wrong with this record, the others must be shown
            defect = f"it is not shown as it is: {exc}"[:300].encode("utf-8", "replace").decode()
        _log_defect(convert.__name__, str(getattr(record, "id", getattr(record, "name", "")))[:200], defect)
        for high in (bounds.LARGEST_WHOLE, bounds.LARGEST_COUNT):
            with suppress(Exception):  # the next attempt shows less of it
                return _set_defect(convert(cast("T", _clamp_value(record, high)), *args, **options), defect)
        message = cast("M", get_type_hints(convert)["return"]())
        for name in NAMES:
            value: object = getattr(record, name, None)
            if isinstance(value, str) and name in message.DESCRIPTOR.fields_by_name:
                setattr(message, name, text(value))
        return _set_defect(message, defect)

    return convert_safely


@lru_cache(maxsize=1000)
def _log_defect(noun: str, name: str, defect: str) -> None:
    """Log that a record is shown in part, once per record however many look at it (the cache deduplicates)."""
    log.warning("record shown in part", noun=noun, id=text(name), why=defect)


def _set_defect(message: M, defect: str) -> M:
    """Set `defect` where the message has it, and return the message."""
    if "defect" in message.DESCRIPTOR.fields_by_name:
        cast("Any", message).defect = defect
    return message


def _clamp_value(value: object, high: int) -> Any:
    """Clamp a record's value to the API's bounds, `high` for integers; None for an invalid number or time.

    At the last attempt (LARGEST_COUNT) mappings are emptied; before, they stay as they are.
    """
    match value:
        case None | bool() | bytes() | Enum():
            return value
        case int():
            return bounds.clamp_whole(value, high=high)
        case float():
            return bounds.clamp_moment(value)
        case str():
            return text(value)
        case tuple():
            return tuple(_clamp_value(each, high) for each in cast("tuple[object, ...]", value))
        case Mapping():
            return {} if high == bounds.LARGEST_COUNT else cast("Mapping[Any, Any]", value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            known = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
            return replace(value, **{name: _clamp_value(each, high) for name, each in known.items()})
        case _:
            return value
