"""References in a server's configuration: kept as written, resolved only when connecting.

`${VAR}` stands for a variable of the hub's environment, `${file:/path}` for the content of a file, and
`${keyring:service/name}` for a password in the system's keyring.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, cast

from pydantic import SecretStr, ValidationError

from hubbubd.config.servers.server import RESOLVED, ServerConfig
from hubbubd.config.validation import make_config_error
from hubbubd.errors import ConfigError
from hubbubd.process import files

RESOLVED_FIELDS = ("command", "args", "env", "cwd", "url", "headers", "oauth", "ca")

SECRET_BYTES: Final = 64 * 1024
"""The largest file that `${file:...}` reads."""

Warn = Callable[[str], None]

_REFERENCE = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_BODY = re.compile(
    r"(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-.*)?"
    r"|file:(?P<file>/.+)"
    r"|keyring:(?P<service>[^/]+)/(?P<entry>.+)",
    re.DOTALL,
)
_FORMS = "${VAR}, ${VAR:-default}, ${env:VAR}, ${file:/PATH}, ${keyring:SERVICE/NAME}"


class Unresolved(ConfigError):
    """A reference to a variable, a file or a password that does not exist."""


class VariableNotSet(Unresolved):
    """A reference to the environment variable `variable`, which is not set."""

    def __init__(self, key: str, variable: str) -> None:
        problem = f"the environment variable {variable} is not set; set it, or give a default: ${{{variable}:-...}}"
        super().__init__(key, problem)
        self.variable = variable


def _ignore_warning(_: str) -> None:
    """Drop the warning: the caller only tests whether references resolve."""


def expand(text: str, environ: Mapping[str, str], key: str = "value", *, warn: Warn = _ignore_warning) -> str:
    """Return the text with its references replaced; reads files and the keyring.

    `${VAR}` and `${env:VAR}` need a variable that is set, `${VAR:-default}` one that may be unset or empty,
    `${file:/PATH}` and `${keyring:SERVICE/NAME}` what they name; `$${` is a literal `${`. `warn` is called for files
    that others can read or change. Raises VariableNotSet, Unresolved for what cannot be read, or ConfigError for other
    text between the braces; `key` is the dotted key of the text, for errors.
    """

    def replace_reference(match: re.Match[str]) -> str:
        """Return the value of one reference. Raises Unresolved, or ConfigError if it is malformed."""
        if match["escaped"]:
            return match["escaped"]
        body = _BODY.fullmatch(match["body"])
        if body is None or not match["end"]:
            raise ConfigError(key, f"{match[0]!r} is none of {_FORMS}")
        if body["file"]:
            return _read_reference_file(body["file"], key, warn)
        if body["service"]:
            return _read_keyring(body["service"], body["entry"], key)
        value = environ.get(body["name"])
        if body["default"] is not None:
            return value or body["default"].removeprefix(":-")
        if value is None:
            raise VariableNotSet(key, body["name"])
        return value

    return _REFERENCE.sub(replace_reference, text)


def list_references(config: ServerConfig) -> Iterator[tuple[str, str]]:
    """Yield each reference of a configuration with its key: variables by name, others as written."""
    unresolved = config.model_dump(include=set(RESOLVED_FIELDS))
    for key, text in _walk_texts(unresolved, f"servers.{config.name}"):
        for match in _REFERENCE.finditer(text):
            body = None if match["escaped"] else _BODY.fullmatch(match["body"])
            if body is not None:
                yield key, body["name"] or match[0]


def has_references(config: ServerConfig) -> bool:
    """Return whether a configuration has text with `${`, which `resolve` must replace."""
    return any("${" in text for _, text in _walk_texts(config.model_dump(include=set(RESOLVED_FIELDS)), ""))


def resolve(config: ServerConfig, environ: Mapping[str, str], *, warn: Warn = _ignore_warning) -> ServerConfig:
    """Return the configuration to connect with, in which references in RESOLVED_FIELDS are replaced.

    Raises Unresolved, or ConfigError for a malformed reference or an invalid result; its key is dotted:
    `servers.NAME.env.TOKEN`.
    """
    if not has_references(config):
        return config
    key = f"servers.{config.name}"
    unresolved = config.model_dump()

    def expand_text(text: str, text_key: str) -> str:
        return expand(text, environ, text_key, warn=warn)

    resolved = {name: _expand_texts(unresolved[name], expand_text, f"{key}.{name}") for name in RESOLVED_FIELDS}
    try:
        return ServerConfig.model_validate(unresolved | resolved, context=RESOLVED)
    except ValidationError as exc:
        raise make_config_error(exc, unresolved, key) from None


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a file; do not block if it is a pipe without a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _read_reference_file(path: str, key: str, warn: Warn) -> str:
    """Return the content of a file without its line end; warn if others can read it. Raises Unresolved."""
    try:
        # O_NONBLOCK and the check for a regular file: reading a FIFO or a terminal would block.
        with open(path, "rb", opener=_open_nonblocking) as file:
            file_stat = os.fstat(file.fileno())
            if not stat.S_ISREG(file_stat.st_mode):
                raise Unresolved(key, f"{path} is not a file")
            content = file.read(SECRET_BYTES + 1)
        text = content.decode("utf-8")
    except OSError as exc:
        raise Unresolved(key, f"{path} cannot be read: {exc.strerror}") from None
    except UnicodeDecodeError:
        raise Unresolved(key, f"{path} is not text in UTF-8") from None
    if len(content) > SECRET_BYTES:
        raise Unresolved(key, f"{path} has more than {SECRET_BYTES} bytes")
    if file_stat.st_mode & 0o077:
        warn(f"{key}: {path} can be read or changed by others; {files.describe_permission_fix(path, file_stat)}")
    return text.removesuffix("\n").removesuffix("\r")


def _read_keyring(service: str, entry: str, key: str) -> str:
    """Return a password of the system's keyring. Raises Unresolved."""
    try:
        keyring: Any = import_module("keyring")
    except ImportError:
        problem = "needs the package keyring, which is not there: install Hubbub again, with all that it needs"
        raise Unresolved(key, f"${{keyring:...}} {problem}") from None
    try:
        password: object = keyring.get_password(service, entry)
    except Exception as exc:  # noqa: BLE001 - each system's keyring fails in its own way, some of them too talkative
        raise Unresolved(key, f"the keyring cannot be asked: {type(exc).__name__}") from None
    if not isinstance(password, str):
        raise Unresolved(key, f"the keyring has no {service}/{entry}")
    return password


def _walk_texts(value: object, key: str) -> Iterator[tuple[str, str]]:
    """Yield the dotted key and the text of each string in a value, secret strings too; `key` is the value's key."""
    if isinstance(value, SecretStr):
        yield key, value.get_secret_value()
    elif isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, entry in cast("dict[str, Any]", value).items():
            yield from _walk_texts(entry, f"{key}.{name}")
    elif isinstance(value, tuple):
        for index, item in enumerate(cast("tuple[Any, ...]", value)):
            yield from _walk_texts(item, f"{key}.{index}")


def _expand_texts(value: object, expand_text: Callable[[str, str], str], key: str) -> object:
    """Return a value with each string in it expanded; `key` is the dotted key of the value."""
    if isinstance(value, str):
        return expand_text(value, key)
    if isinstance(value, SecretStr):
        return SecretStr(expand_text(value.get_secret_value(), key))
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {name: _expand_texts(entry, expand_text, f"{key}.{name}") for name, entry in entries.items()}
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        return tuple(_expand_texts(item, expand_text, f"{key}.{index}") for index, item in enumerate(items))
    return value
