"""Values of JSON that others sent, where only some form of them is of use."""

from typing import Any, cast


def as_object(value: object) -> dict[str, Any]:
    """Return an object; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return an array; an empty one for anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def is_deeper(value: object, levels: int) -> bool:
    """Return whether a value has more levels of objects and arrays than this."""
    level = [value]
    for _ in range(levels):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below += cast("dict[str, Any]", each).values()
            elif isinstance(each, list):
                below += cast("list[Any]", each)
        if not below:
            return False
        level = below
    return True
