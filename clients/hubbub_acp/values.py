"""Values of JSON that others sent, where only some form of them is of use."""

from typing import Any, cast


def as_object(value: object) -> dict[str, Any]:
    """Return an object; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return an array; an empty one for anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []
