"""Actions of a page: a function becomes one by its name, and its arguments are checked."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from pydantic import ConfigDict, Field, validate_call

Action = Callable[..., Awaitable[Any]]
Id = Annotated[str, Field(min_length=1, max_length=128)]


def register(actions: dict[str, Action], function: Action) -> Action:
    """Add a function to actions under its name, with its arguments checked; return the checked function."""
    checked = validate_call(config=ConfigDict(strict=True, arbitrary_types_allowed=True))(function)
    actions[function.__name__] = checked
    return checked
