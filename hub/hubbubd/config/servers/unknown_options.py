"""Configurations in stored records: options that this version does not know are set aside, and written again.

A newer version may have written them, before it was replaced by this one or at another member of a fleet. Files and
callers are refused what nobody knows (`server.py`).
"""

from typing import Annotated, Any, cast

from pydantic import (
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapSerializer,
    WrapValidator,
)

from hubbubd.config.servers.server import ServerConfig


def _read(value: Any, handler: ValidatorFunctionWrapHandler) -> ServerConfig:
    try:
        return handler(value)
    except ValidationError as exc:
        strange = [each["loc"] for each in exc.errors(include_url=False) if each["type"] == "extra_forbidden"]
        if not strange:
            raise
    known, unknown = cast("dict[str, Any]", value), dict[str, Any]()
    for loc in strange:
        known = _moved(known, unknown, loc)
    config: ServerConfig = handler(known)
    return config.with_unknown(unknown)


def _moved(known: dict[str, Any], unknown: dict[str, Any], loc: tuple[int | str, ...]) -> dict[str, Any]:
    """Move what is at a path from a document to another one, and return the first without it."""
    name = str(loc[0])
    if len(loc) == 1:
        unknown[name] = known[name]
        return {key: value for key, value in known.items() if key != name}
    return {**known, name: _moved(known[name], unknown.setdefault(name, {}), loc[1:])}


def _write(config: ServerConfig, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
    return _merged(handler(config), config.unknown)


def _merged(known: dict[str, Any], unknown: dict[str, Any]) -> dict[str, Any]:
    """Return both together; what is known counts where a name is in both."""
    inner = {
        name: _merged(cast("dict[str, Any]", known[name]), cast("dict[str, Any]", value))
        for name, value in unknown.items()
        if isinstance(known.get(name), dict) and isinstance(value, dict)
    }
    return {**unknown, **known, **inner}


StoredConfig = Annotated[ServerConfig, WrapValidator(_read), WrapSerializer(_write)]
"""A server's configuration as a field of a stored record."""
