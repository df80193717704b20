"""Configuration files: the hub's own TOML, and the JSON files of MCP clients."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from hubbubd import payload
from hubbubd.config.hub import HubSettings
from hubbubd.config.server import ServerConfig
from hubbubd.config.validation import config_error, unknown_key
from hubbubd.errors import ConfigError

SERVER_KEYS = tuple(name for name in ServerConfig.model_fields if name != "name")

# Keys that other programs keep in a server's entry, for people or their own interface. The hub ignores them.
FOREIGN_KEYS = frozenset({"alwaysAllow", "autoApprove", "description", "dev", "gallery", "icon", "timeout", "version"})
FOREIGN_TRANSPORTS = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "sse": "sse",
}


@dataclass(frozen=True, slots=True)
class FileContent:
    """One parsed file: the raw `hub` table, not validated, and its validated servers."""

    path: Path
    hub: dict[str, Any]
    servers: tuple[ServerConfig, ...]


def read_file(path: Path) -> FileContent:
    """Parse a configuration file by its suffix (`.toml`, `.json`). Raises ConfigError.

    TOML has `[hub]` and `[servers.NAME]`, and nothing else. JSON has `mcpServers` or `servers`, and may have `hub`;
    other top-level keys belong to the program that the file was written for and are ignored.
    """
    where = str(path)
    try:
        raw = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the path, bytes that are not UTF-8
        raise ConfigError(where, f"cannot be read: {getattr(exc, 'strerror', None) or exc}") from None
    match path.suffix.lower():
        case ".toml":
            root = _parse(where, "TOML", lambda: tomllib.loads(raw))
            tables = {"hub", "servers"}
            section = "servers"
            for name in root.keys() - tables:
                raise unknown_key(f"{where}: {name}", name, tables)
            servers = _table(root, section, f"{where}: {section}")
        case ".json":
            root = _parse(where, "JSON", lambda: payload.loads(raw))
            section = "mcpServers" if "mcpServers" in root else "servers"
            if "mcpServers" in root and "servers" in root:
                raise ConfigError(f"{where}: servers", "stands beside mcpServers; keep one of them")
            if section not in root and "hub" not in root:
                raise ConfigError(where, "has none of mcpServers, servers and hub")
            servers = _adopt(_table(root, section, f"{where}: {section}"), f"{where}: {section}")
        case ending:
            raise ConfigError(where, f"a configuration file ends in .toml or .json, not {ending!r}")
    hub = _table(root, "hub", f"{where}: hub")
    for name in hub.keys() - HubSettings.model_fields.keys():
        raise unknown_key(f"{where}: hub.{name}", name, HubSettings.model_fields)
    return FileContent(path, hub, tuple(_servers(servers, f"{where}: {section}")))


def _parse(where: str, form: str, parse: Any) -> dict[str, Any]:
    try:
        root: object = parse()
    except (ValueError, RecursionError) as exc:
        raise ConfigError(where, f"is not valid {form}: {exc}") from None
    if not isinstance(root, dict):
        raise ConfigError(where, "must be an object")
    return cast("dict[str, Any]", root)


def _table(parent: Mapping[str, Any], name: str, key: str) -> dict[str, Any]:
    table: object = parent.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(key, "must be a table of keys and values")
    return cast("dict[str, Any]", table)


def _servers(table: Mapping[str, Any], key: str) -> Iterable[ServerConfig]:
    for name in table:
        options = _table(table, name, f"{key}.{name}")
        if "name" in options:
            raise ConfigError(f"{key}.{name}.name", "a server is named by its table")
        try:
            yield ServerConfig.model_validate({**options, "name": name})
        except ValidationError as exc:
            if exc.errors()[0]["loc"] == ("name",):
                raise ConfigError(f"{key}.{name}", "a name has letters, digits, '.', '_', '-', at most 64") from None
            raise config_error(exc, options, f"{key}.{name}", SERVER_KEYS) from None


def _adopt(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Translate the servers of another program's file to the hub's keys, without the disabled ones."""
    adopted: dict[str, Any] = {}
    for name in table:
        options = _table(table, name, f"{key}.{name}")
        if options.get("disabled") is True:
            continue
        ours = {k: v for k, v in options.items() if k not in FOREIGN_KEYS | {"disabled", "type"}}
        if "type" in options:
            kind = options["type"]
            if not isinstance(kind, str) or kind not in FOREIGN_TRANSPORTS:
                raise ConfigError(f"{key}.{name}.type", f"must be one of {', '.join(FOREIGN_TRANSPORTS)}")
            ours["transport"] = FOREIGN_TRANSPORTS[kind]
        adopted[name] = ours
    return adopted
