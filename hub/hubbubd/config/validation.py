"""Translate pydantic's errors to a ConfigError: one line with the key and the reason."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, cast

from pydantic import ValidationError

from hubbubd.errors import ConfigError

_UNKNOWN_KEY = "unknown key; docs/configuration.md lists all keys"

NO_TABLE = "must be a table of keys and values"
_MESSAGES = {
    **dict.fromkeys(("model_type", "dict_type"), NO_TABLE),
    **dict.fromkeys(("tuple_type", "list_type"), 'must be a list, such as ["a", "b"]'),
}
"""Messages by pydantic's type of error, in place of pydantic's own, which name types of Python."""


def make_config_error(exc: ValidationError, value: Any, key: str, known: Iterable[str] = ()) -> ConfigError:
    """Return the error for the first problem of `value` at `key`; `known` are keys to suggest for an unknown one."""
    error = exc.errors(include_url=False, include_context=False)[0]
    path = _find_key_path(error["loc"], value)
    if error["type"] == "missing":
        path.append(str(error["loc"][-1]))
    dotted = ".".join((key, *path)) if key else ".".join(path)
    if error["type"] == "extra_forbidden":
        return make_unknown_key_error(dotted, path[-1], known)
    message = _MESSAGES.get(error["type"]) or error["msg"].removeprefix("Value error, ")
    return ConfigError(dotted, message[:1].lower() + message[1:])


def make_unknown_key_error(dotted: str, name: str, known: Iterable[str]) -> ConfigError:
    """Return the error for an unknown key, which suggests a similar known one."""
    similar_keys = get_close_matches(name, known, n=1)
    return ConfigError(dotted, f"unknown key; did you mean {similar_keys[0]!r}?" if similar_keys else _UNKNOWN_KEY)


def _find_key_path(loc: tuple[int | str, ...], value: Any) -> list[str]:
    """Return the keys that lead to the wrong value, without pydantic's other steps in `loc`."""
    # pydantic's loc also contains the names of union members: only steps that lead into the value are keys.
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
