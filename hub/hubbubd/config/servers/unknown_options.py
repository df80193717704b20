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


def _validate_stored(value: Any, handler: ValidatorFunctionWrapHandler) -> ServerConfig:
    """Return the configuration of a stored record, with the options of other versions in `unknown`.

    Raises ValidationError for other problems.
    """
    try:
        return handler(value)
    except ValidationError as exc:
        unknown_locations = [each["loc"] for each in exc.errors(include_url=False) if each["type"] == "extra_forbidden"]
        if not unknown_locations:
            raise
    known, unknown = cast("dict[str, Any]", value), dict[str, Any]()
    for location in unknown_locations:
        known = _move_value(known, unknown, location)
    config: ServerConfig = handler(known)
    return config.with_unknown(unknown)


def _move_value(known: dict[str, Any], unknown: dict[str, Any], location: tuple[int | str, ...]) -> dict[str, Any]:
    """Copy the value at `location` into `unknown`, and return `known` without this value."""
    name = str(location[0])
    if len(location) == 1:
        unknown[name] = known[name]
        return {key: value for key, value in known.items() if key != name}
    return {**known, name: _move_value(known[name], unknown.setdefault(name, {}), location[1:])}


def _serialize_stored(config: ServerConfig, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
    """Return a configuration as it is stored, including its unknown options."""
    return _merge_unknown(handler(config), config.unknown)


def _merge_unknown(known: dict[str, Any], unknown: dict[str, Any]) -> dict[str, Any]:
    """Return both objects merged, inner objects too; where both have a value, that of `known` wins."""
    inner = {
        name: _merge_unknown(cast("dict[str, Any]", known[name]), cast("dict[str, Any]", value))
        for name, value in unknown.items()
        if isinstance(known.get(name), dict) and isinstance(value, dict)
    }
    return {**unknown, **known, **inner}


StoredConfig = Annotated[ServerConfig, WrapValidator(_validate_stored), WrapSerializer(_serialize_stored)]
"""A server's configuration as a field of a stored record."""
