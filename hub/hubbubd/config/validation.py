"""From pydantic's errors to the hub's own: one line that names the key and why."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, cast

from pydantic import ValidationError

from hubbubd.errors import ConfigError

_UNKNOWN = "unknown key; docs/configuration.md has those there are"


def config_error(exc: ValidationError, value: Any, key: str, known: Iterable[str] = ()) -> ConfigError:
    """The first of the errors, for the `value` that stands at `key`; `known` are the keys to suggest from."""
    error = exc.errors(include_url=False, include_context=False)[0]
    path = _path(error["loc"], value)
    dotted = ".".join((key, *path)) if key else ".".join(path)
    if error["type"] == "extra_forbidden":
        return unknown_key(dotted, path[-1], known)
    message = error["msg"].removeprefix("Value error, ")
    return ConfigError(dotted, message[:1].lower() + message[1:])


def unknown_key(dotted: str, name: str, known: Iterable[str]) -> ConfigError:
    """A key that means nothing, with the one that was probably meant."""
    near = get_close_matches(name, known, n=1)
    return ConfigError(dotted, f"unknown key; did you mean {near[0]!r}?" if near else _UNKNOWN)


def _path(loc: tuple[int | str, ...], value: Any) -> list[str]:
    # pydantic also puts the names of union members there: only what leads into the value is a key.
    path: list[str] = []
    for step in loc:
        if isinstance(value, Mapping) and step in value:
            value = cast("Mapping[Any, Any]", value)[step]
        elif isinstance(value, list | tuple) and isinstance(step, int):
            value = cast("list[Any]", value)[step]
        else:
            continue
        path.append(str(step))
    return path
