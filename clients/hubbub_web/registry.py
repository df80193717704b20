"""Actions of a page: a function becomes one by its name, and its arguments are checked."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from pydantic import ConfigDict, Field, validate_call

Action = Callable[..., Awaitable[Any]]
Id = Annotated[str, Field(min_length=1, max_length=128)]


def register(actions: dict[str, Action], function: Action) -> Action:
    """Wrap a function so that its arguments are checked, add it to `actions` under its name, and return it."""
    checked = validate_call(config=ConfigDict(strict=True, arbitrary_types_allowed=True))(function)
    actions[function.__name__] = checked
    return checked
