"""Values of JSON that others sent, where only some form of them is of use."""

import re
from collections.abc import Iterable
from typing import Any, Final, cast

_MEMBER: Final = re.compile(rb'\s*[{,]\s*"(jsonrpc|id|method)"\s*:\s*("[^"\\]{0,256}"|-?\d{1,18})(?=\s*[,}])')


def as_object(value: object) -> dict[str, Any]:
    """Return the value itself if it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return the value itself if it is an array, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def is_deeper(value: object, levels: int) -> bool:
    """Return whether a value has more than `levels` levels of objects and arrays."""
    level: list[Any] = [value]
    for _ in range(levels + 1):
        containers = [cast("dict[str, Any] | list[Any]", each) for each in level if isinstance(each, dict | list)]
        if not containers:
            return False
        level = [below for each in containers for below in _list_members(each)]
    return True


def _list_members(container: "dict[str, Any] | list[Any]") -> Iterable[Any]:
    """Return the values in an object or array."""
    return container.values() if isinstance(container, dict) else container


def read_members(beginning: bytes) -> dict[str, Any]:
    """Return `id` and `method` of a message of JSON-RPC, as far as its beginning has them before any other member."""
    found: dict[str, Any] = {}
    at = 0
    while (member := _MEMBER.match(beginning, at)) is not None:
        name, value = member[1].decode(), member[2].decode(errors="replace")
        found[name] = value[1:-1] if value.startswith('"') else int(value)
        at = member.end()
    return found
