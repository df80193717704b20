"""`${VAR}` in a server's configuration: kept as written, replaced only at the moment of connecting."""

import re
from collections.abc import Mapping
from typing import Any, cast

from pydantic import SecretStr, ValidationError

from hubbubd.config.server import ServerConfig
from hubbubd.config.validation import config_error
from hubbubd.errors import ConfigError

RESOLVED_FIELDS = ("command", "args", "env", "cwd", "url", "headers", "oauth")

_REFERENCE = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_BODY = re.compile(r"(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-.*)?", re.DOTALL)


class VariableNotSet(ConfigError):
    """A reference names a variable that has no value here; `variable` is its name."""

    def __init__(self, key: str, variable: str) -> None:
        super().__init__(key, f"the environment variable {variable} is not set")
        self.variable = variable


def expand(text: str, environ: Mapping[str, str], key: str = "value") -> str:
    """The text with its references replaced.

    `${VAR}` and `${env:VAR}` stand for a variable that must be set, `${VAR:-default}` for one that may be unset
    or empty, `$${` for a plain `${`. Raises VariableNotSet, or ConfigError for anything else between the braces;
    `key` says in either where the text stands.
    """

    def replacement(match: re.Match[str]) -> str:
        if match["escaped"]:
            return match["escaped"]
        body = _BODY.fullmatch(match["body"])
        if body is None or not match["end"]:
            raise ConfigError(key, f"{match[0]!r} is none of ${{VAR}}, ${{VAR:-default}}, ${{env:VAR}}")
        value = environ.get(body["name"])
        if body["default"] is not None:
            return value or body["default"].removeprefix(":-")
        if value is None:
            raise VariableNotSet(key, body["name"])
        return value

    return _REFERENCE.sub(replacement, text)


def resolve(config: ServerConfig, environ: Mapping[str, str]) -> ServerConfig:
    """The configuration to connect with: references in command, args, env, cwd, url, headers and
    oauth replaced.

    Raises VariableNotSet, or ConfigError for a malformed reference or a result that is no valid configuration;
    the key is dotted: `servers.NAME.env.TOKEN`.
    """
    key = f"servers.{config.name}"
    written = config.model_dump()
    resolved = {name: _expand_all(written[name], environ, f"{key}.{name}") for name in RESOLVED_FIELDS}
    try:
        return ServerConfig.model_validate(written | resolved)
    except ValidationError as exc:
        raise config_error(exc, written, key) from None


def _expand_all(value: object, environ: Mapping[str, str], key: str) -> object:
    if isinstance(value, str):
        return expand(value, environ, key)
    if isinstance(value, SecretStr):
        return SecretStr(expand(value.get_secret_value(), environ, key))
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {name: _expand_all(entry, environ, f"{key}.{name}") for name, entry in entries.items()}
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        return tuple(_expand_all(item, environ, f"{key}.{index}") for index, item in enumerate(items))
    return value
