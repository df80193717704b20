"""Configuration files: the hub's own TOML, and the JSON files of MCP clients."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Final, cast

from dotenv import dotenv_values
from pydantic import ValidationError

from hubbubd import payload
from hubbubd.config.hub import HubSettings
from hubbubd.config.sections.approvals import APPROVALS, ApprovalSettings, read_approvals
from hubbubd.config.sections.fleet import FLEET, FleetSettings
from hubbubd.config.sections.mcp import PROFILE_NAME, PROFILES, ProfileSettings
from hubbubd.config.sections.store import STORE, StoreSettings
from hubbubd.config.servers.server import OWN_NAME, ServerConfig
from hubbubd.config.validation import NO_TABLE, make_config_error, make_unknown_key_error
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


OWN_TABLES: Final = {STORE: StoreSettings, FLEET: FleetSettings, APPROVALS: ApprovalSettings}
"""Settings of the hub that are tables beside `[hub]` in a TOML file."""

MAX_VARIABLES_BYTES: Final = 1024 * 1024
"""The largest file that an `envFile` names."""

# As VS Code and Cursor have them.
_EDITOR_REFERENCE: Final = re.compile(
    r"(?<!\$)\$\{((input|command|config):[^}]*|workspaceFolder(:[^}]*|Basename)?|userHome|pathSeparator|/)\}"
)


@dataclass(frozen=True, slots=True)
class FileContent:
    """A parsed file: its settings of the hub, not validated yet, and its validated servers and profiles."""

    path: Path
    hub: dict[str, Any]
    servers: tuple[ServerConfig, ...]
    profiles: Mapping[str, ProfileSettings]


def read_file(path: Path) -> FileContent:
    """Parse a configuration file by its suffix (`.toml`, `.json`). Raises ConfigError.

    TOML has `[hub]`, `[store]`, `[fleet]`, `[approvals]`, `[mcp.profiles.NAME]`, `[servers.NAME]`, and a `[notify]`
    that only `hubbub notify` reads. JSON has `mcpServers` or `servers`, and may have `hub` and an `mcp` with
    `profiles`; other top-level keys belong to the program that the file was written for and are ignored.
    """
    where = str(path)
    try:
        raw = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the path, bytes that are not UTF-8
        raise ConfigError(where, f"cannot be read: {getattr(exc, 'strerror', None) or exc}") from None
    match path.suffix.lower():
        case ".toml":
            root = _parse_root(where, "TOML", lambda: tomllib.loads(raw))
            tables = {"hub", "mcp", "notify", "servers", *OWN_TABLES}
            section = "servers"
            for name in root.keys() - tables:
                raise make_unknown_key_error(f"{where}: {name}", name, tables)
            servers = _get_table(root, section, f"{where}: {section}")
            mcp = _get_table(root, "mcp", f"{where}: mcp")
            _get_table(root, "notify", f"{where}: notify")  # only to refuse a value that is no table
        case ".json":
            root = _parse_root(where, "JSON", lambda: payload.loads(raw))
            section = "mcpServers" if "mcpServers" in root else "servers"
            if "mcpServers" in root and "servers" in root:
                raise ConfigError(f"{where}: servers", "stands beside mcpServers; keep one of them")
            mcp: Any = root.get("mcp")  # without profiles it belongs to another program
            mcp = cast("dict[str, Any]", mcp) if isinstance(mcp, dict) and "profiles" in mcp else {}
            if section not in root and "hub" not in root and not mcp:
                raise ConfigError(where, "has none of mcpServers, servers and hub")
            servers = _translate_servers(
                _get_table(root, section, f"{where}: {section}"), f"{where}: {section}", path.absolute().parent
            )
        case suffix:
            raise ConfigError(where, f"a configuration file ends in .toml or .json, not {suffix!r}")
    hub = _get_table(root, "hub", f"{where}: hub")
    if PROFILES in hub:
        raise ConfigError(f"{where}: hub.{PROFILES}", "in a file, each profile is a table [mcp.profiles.NAME]")
    for name in OWN_TABLES.keys() & hub.keys():
        raise ConfigError(f"{where}: hub.{name}", f"in a file, this is the table [{name}]")
    if path.suffix.lower() == ".toml":
        hub |= _read_own_tables(root, where, raw)
    for name in hub.keys() - HubSettings.model_fields.keys():
        raise make_unknown_key_error(f"{where}: hub.{name}", name, HubSettings.model_fields)
    profiles = dict(_read_profiles(mcp, f"{where}: mcp"))
    return FileContent(path, hub, tuple(_read_servers(servers, f"{where}: {section}")), profiles)


def _read_own_tables(root: Mapping[str, Any], where: str, text: str) -> dict[str, Any]:
    """Return the tables beside `[hub]` that are settings of the hub, with approvals validated. Raises ConfigError."""
    own_tables: dict[str, Any] = {}
    for name, settings in OWN_TABLES.items():
        if table := _get_table(root, name, f"{where}: {name}"):
            for key in table.keys() - settings.model_fields.keys():
                raise make_unknown_key_error(f"{where}: {name}.{key}", key, settings.model_fields)
            own_tables[name] = read_approvals(table, f"{where}: {name}", text) if name == APPROVALS else table
    return own_tables


def _parse_root(where: str, format_name: str, parse: Any) -> dict[str, Any]:
    """Return the top-level table that `parse` makes of a file's text. Raises ConfigError."""
    try:
        root: object = parse()
    except (ValueError, RecursionError) as exc:
        raise ConfigError(where, f"is not valid {format_name}: {exc}") from None
    if not isinstance(root, dict):
        raise ConfigError(where, "must be an object")
    return cast("dict[str, Any]", root)


def _get_table(parent: Mapping[str, Any], name: str, key: str) -> dict[str, Any]:
    """Return the table `name` of a table, empty if missing. Raises ConfigError with the key `key` if it is no table."""
    table: object = parent.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(key, NO_TABLE)
    return cast("dict[str, Any]", table)


def _read_servers(table: Mapping[str, Any], key: str) -> Iterable[ServerConfig]:
    """Yield the servers of a table, validated; `key` names the table in errors. Raises ConfigError."""
    for name in table:
        options = _get_table(table, name, f"{key}.{name}")
        if "name" in options:
            raise ConfigError(f"{key}.{name}.name", "a server is named by its table")
        if name == OWN_NAME:
            raise ConfigError(f"{key}.{name}", "is the hub's own name, to its hosts; give the server another")
        try:
            yield ServerConfig.model_validate({**options, "name": name})
        except ValidationError as exc:
            if exc.errors()[0]["loc"] == ("name",):
                raise ConfigError(f"{key}.{name}", "a name has letters, digits, '.', '_', '-', at most 64") from None
            raise make_config_error(exc, options, f"{key}.{name}", SERVER_KEYS) from None


def _read_profiles(mcp: Mapping[str, Any], key: str) -> Iterable[tuple[str, ProfileSettings]]:
    """Yield the profiles of a table `mcp` by name, validated. Raises ConfigError."""
    for name in mcp.keys() - {"profiles"}:
        raise make_unknown_key_error(f"{key}.{name}", name, {"profiles"})
    table = _get_table(mcp, "profiles", f"{key}.profiles")
    for name in table:
        where = f"{key}.profiles.{name}"
        if not PROFILE_NAME.fullmatch(name):
            raise ConfigError(where, "a name has letters, digits, '.', '_', '-', at most 64")
        options = _get_table(table, name, where)
        try:
            yield name, ProfileSettings.model_validate(options)
        except ValidationError as exc:
            raise make_config_error(exc, options, where, ProfileSettings.model_fields) from None


def _translate_servers(table: Mapping[str, Any], key: str, directory: Path) -> dict[str, Any]:
    """Return the servers of another program's file with the hub's keys, without the disabled servers.

    The path of an `envFile` is relative to `directory`, that of the file. Raises ConfigError.
    """
    translated: dict[str, Any] = {}
    for name in table:
        options = _get_table(table, name, f"{key}.{name}")
        if options.get("disabled") is True:
            continue
        known_options = {k: v for k, v in options.items() if k not in FOREIGN_KEYS}
        _refuse_editor_references(known_options, f"{key}.{name}")
        server_options = {k: v for k, v in known_options.items() if k not in ("disabled", "type", "envFile")}
        if "envFile" in options:
            # The entry's own variables override those of the file.
            server_options["env"] = _read_env_file(options["envFile"], f"{key}.{name}.envFile", directory) | _get_table(
                options, "env", f"{key}.{name}.env"
            )
        if "type" in options:
            kind = options["type"]
            if not isinstance(kind, str) or kind not in FOREIGN_TRANSPORTS:
                raise ConfigError(f"{key}.{name}.type", f"must be one of {', '.join(FOREIGN_TRANSPORTS)}")
            server_options["transport"] = FOREIGN_TRANSPORTS[kind]
        translated[name] = server_options
    return translated


def _refuse_editor_references(value: object, key: str) -> None:
    """Raise ConfigError for the first reference in a value that only an editor can resolve."""
    if isinstance(value, str):
        if found := _EDITOR_REFERENCE.search(value):
            raise ConfigError(key, f"{found[0]} is known to an editor alone; `hubbub config import FILE` resolves it")
    elif isinstance(value, dict):
        for name, each in cast("dict[str, object]", value).items():
            _refuse_editor_references(each, f"{key}.{name}")
    elif isinstance(value, list):
        for number, each in enumerate(cast("list[object]", value)):
            _refuse_editor_references(each, f"{key}.{number}")


def _read_env_file(env_file: object, key: str, directory: Path) -> dict[str, str]:
    """Return the variables of a file with lines NAME=VALUE, `${` in values as literal text. Raises ConfigError."""
    if not isinstance(env_file, str) or "\0" in env_file:
        raise ConfigError(key, "must be the path of a file")
    path = directory / Path(env_file).expanduser()
    try:
        if path.exists() and not path.is_file():  # reading a pipe would block
            raise ConfigError(key, f"{path} is not a file")
        with path.open("rb") as file:
            raw = file.read(MAX_VARIABLES_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except OSError as exc:
        raise ConfigError(key, f"{path} cannot be read: {exc.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(key, f"{path} is not text in UTF-8") from None
    if len(raw) > MAX_VARIABLES_BYTES:
        raise ConfigError(key, f"{path} has more than {MAX_VARIABLES_BYTES} bytes")
    variables = dotenv_values(stream=StringIO(text), interpolate=False)
    return {name: value.replace("${", "$${") for name, value in variables.items() if value is not None}
