"""Load settings: files, then environment, then command line; the later ones win."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource
from pydantic_settings.exceptions import SettingsError

from hubbub_shared import __version__, platform
from hubbub_shared.platform.directories import default_config_file, default_data_dir
from hubbubd.config.cross_checks import check_settings
from hubbubd.config.files import OWN_TABLES, FileContent, read_file
from hubbubd.config.hub import ENV_PREFIX, HubSettings
from hubbubd.config.sections.approvals import APPROVALS
from hubbubd.config.sections.fleet import FLEET
from hubbubd.config.sections.mcp import PROFILES, ProfileSettings
from hubbubd.config.sections.store import STORE
from hubbubd.config.servers.references import Unresolved, resolve
from hubbubd.config.servers.server import ServerConfig
from hubbubd.config.store_addresses import OPTION, StoreCopy, parse_store_address
from hubbubd.config.validation import NO_TABLE, make_config_error
from hubbubd.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """The settings that a hub starts with. `servers` are those of `files`, with references unresolved.

    `files` has the default file even while it is missing, so that it is watched. The keys of `origins` are names of
    servers, its values the files that have them.
    """

    hub: HubSettings
    servers: tuple[ServerConfig, ...] = ()
    files: tuple[Path, ...] = ()
    origins: Mapping[str, Path] = field(default_factory=dict[str, Path])
    check_config: str | None = None
    """`settings` checks the settings alone; `all` also references, and what the hub needs. None starts a hub."""
    copy_store: StoreCopy | None = None
    """A copy to make instead of starting a hub."""
    release: bool = False
    """Whether the last term of this member of a fleet is to be declared gone, instead of starting a hub."""


def load_settings(argv: Sequence[str], environ: Mapping[str, str]) -> LoadedSettings:
    """Return the settings of a hub started with these arguments (without the program's name) and this environment.

    Without `--config` and HUBBUBD_CONFIG the default file is read, if it exists.

    Raises ConfigError: for unknown options, unreadable or contradictory files, invalid values, malformed references;
    with `--check-config` also for references that cannot be resolved, such as to a variable that `environ` lacks.
    `--help` and `--version` print and raise SystemExit(0).
    """
    options = _make_parser().parse_args(argv)
    paths, files = _read_files(options.config, environ)
    servers = _merge_servers(files)
    unresolved = tuple(
        error for file in files for server in file.servers if (error := _find_unresolved(server, environ, file))
    )
    if unresolved and options.check_config == "all":
        raise unresolved[0]
    command_line = {name: value for name in COMMAND_LINE_SETTINGS if (value := getattr(options, name)) is not None}
    hub = _merge_layers(command_line, environ, files, servers)
    return LoadedSettings(
        hub=hub,
        servers=servers,
        files=paths,
        origins={server.name: file.path for file in files for server in file.servers},
        check_config=options.check_config,
        copy_store=_parse_store_copy(options, hub),
        release=options.release,
    )


def _parse_store_copy(options: Namespace, hub: HubSettings) -> StoreCopy | None:
    """Return the copy that the option --copy-store requests; None without the option. Raises ConfigError."""
    if options.copy_store is None:
        if options.secrets or options.verify:
            raise ConfigError("usage", f"--secrets and --verify belong to {OPTION}; see hubbubd --help")
        return None
    source, target = (parse_store_address(argument, hub.store) for argument in options.copy_store)
    if source.is_same(target):
        raise ConfigError(OPTION, "FROM and TO are the same store")
    return StoreCopy(source=source, target=target, secrets=options.secrets, verify=options.verify)


def _read_files(
    config_args: Sequence[str] | None, environ: Mapping[str, str]
) -> tuple[tuple[Path, ...], list[FileContent]]:
    """Return the paths of the configuration files, and the contents of those that exist. Raises ConfigError."""
    names = config_args or [path for path in environ.get(f"{ENV_PREFIX}CONFIG", "").split(os.pathsep) if path]
    if names:
        paths = tuple(Path(path).expanduser() for path in names)
        return paths, [read_file(path) for path in paths]
    default = default_config_file(platform.NAME, Path.home(), environ)
    # A broken link is a mistake: `read_file` raises an error for it.
    is_present = default.exists() or default.is_symlink()
    return (default,), [read_file(default)] if is_present else []


COMMAND_LINE_SETTINGS = ("listen", "data_dir", "log_file")
"""Settings that are also options of the command line."""

TABLE_FORMS = {
    STORE: f"[{STORE}] in a file, {ENV_PREFIX}STORE__URL and others in the environment",
    FLEET: f"[{FLEET}] in a file, {ENV_PREFIX}FLEET__NAME and others in the environment",
    APPROVALS: f"[{APPROVALS}] in a file, {ENV_PREFIX}APPROVALS__DEFAULT and others in the environment",
    PROFILES: "[mcp.profiles.NAME] in a file, JSON in the environment",
}
"""How a setting that is a table is written, by its name; for error messages."""

_EPILOG = (
    f"Without --config the files are those of {ENV_PREFIX}CONFIG, else hubbub.toml in the folder hubbub of your "
    "configuration (~/.config). docs/configuration.md has all settings."
)


class _OptionParser(ArgumentParser):
    """A parser that raises ConfigError, where `ArgumentParser` would end the process."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError with the usage error `message`."""
        raise ConfigError("usage", f"{message}; see hubbubd --help")


def _make_parser() -> ArgumentParser:
    """Return the parser of the command line, which raises ConfigError for wrong options."""
    parser = _OptionParser(
        prog="hubbubd", description="One hub for many MCP servers.", epilog=_EPILOG, allow_abbrev=False
    )
    parser.add_argument("--config", action="append", metavar="FILE", help="TOML or JSON by its ending; repeatable")
    parser.add_argument("--listen", metavar="HOST:PORT | unix:PATH", help="where the API is served")
    parser.add_argument("--data-dir", metavar="DIR", help="where the hub keeps its state")
    parser.add_argument("--log-file", metavar="FILE", help="where the log goes, instead of stderr")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument(
        "--check-config",
        nargs="?",
        const="all",
        choices=("all", "settings"),
        help="look at it and at what it needs (settings: at nothing but the settings), and exit",
    )
    modes.add_argument(
        OPTION,
        nargs=2,
        metavar=("FROM", "TO"),
        help="copy a store that no hub has open to an empty one, and exit; sqlite:PATH or postgresql://...",
    )
    modes.add_argument(
        "--release",
        action="store_true",
        help="say to the fleet that this member has ended, if its process has, and exit; for ExecStopPost of systemd",
    )
    parser.add_argument("--secrets", action="store_true", help="copy the secrets of servers, too")
    parser.add_argument("--verify", action="store_true", help="compare both stores afterwards")
    parser.add_argument("--version", action="version", version=f"hubbubd {__version__}")
    return parser


def _merge_servers(files: Sequence[FileContent]) -> tuple[ServerConfig, ...]:
    """Return the servers of all files. Raises ConfigError if two servers have the same name."""
    servers_and_paths: dict[str, tuple[ServerConfig, Path]] = {}
    for file in files:
        for server in file.servers:
            if server.name in servers_and_paths:
                raise ConfigError(
                    f"{file.path}: servers.{server.name}", f"is also in {servers_and_paths[server.name][1]}"
                )
            servers_and_paths[server.name] = server, file.path
    return tuple(server for server, _ in servers_and_paths.values())


def _merge_profiles(files: Sequence[FileContent]) -> dict[str, ProfileSettings]:
    """Return the profiles of all files, by name. Raises ConfigError if two files have a profile of the same name."""
    profiles_and_paths: dict[str, tuple[ProfileSettings, Path]] = {}
    for file in files:
        for name, profile in file.profiles.items():
            if name in profiles_and_paths:
                raise ConfigError(f"{file.path}: mcp.profiles.{name}", f"is also in {profiles_and_paths[name][1]}")
            profiles_and_paths[name] = profile, file.path
    return {name: profile for name, (profile, _) in profiles_and_paths.items()}


def _check_rules_are_in_one_file(files: Sequence[FileContent]) -> None:
    """Raise ConfigError if two files have rules of approvals: rules need an order, and files have none."""
    paths = [file.path for file in files if file.hub.get(APPROVALS, {}).get("rules")]
    if len(paths) > 1:
        raise ConfigError(f"{paths[1]}: {APPROVALS}.rules", f"are also in {paths[0]}; keep all of them in one file")


def _find_unresolved(server: ServerConfig, environ: Mapping[str, str], file: FileContent) -> ConfigError | None:
    """Return the error for the first reference of a server that cannot be resolved; None if all can.

    Raises ConfigError for a malformed reference.
    """
    try:
        resolve(server, environ)
    except Unresolved as exc:
        return ConfigError(f"{file.path}: {exc.key}", exc.problem)
    except ConfigError as exc:
        raise ConfigError(f"{file.path}: {exc.key}", exc.problem) from None
    return None


def _merge_layers(
    command_line: dict[str, Any],
    environ: Mapping[str, str],
    files: Sequence[FileContent],
    servers: Sequence[ServerConfig],
) -> HubSettings:
    """Merge the settings of files, environment and command line, of which the later ones win, and check the result.

    Raises ConfigError, which names the source of the invalid value.
    """
    environment = EnvSettingsSource(HubSettings, env_nested_delimiter="__")
    environment.env_vars = {name.lower(): value for name, value in environ.items()}
    _check_rules_are_in_one_file(files)
    values: dict[str, Any] = {"data_dir": default_data_dir(environ)}
    if profiles := _merge_profiles(files):
        values[PROFILES] = profiles
    try:
        for layer in (*(file.hub for file in files), environment(), command_line):
            # Tables are merged key by key. A value that is no table replaces the table, and is refused below.
            tables = {name: (values.get(name), layer.get(name)) for name in OWN_TABLES}
            values |= layer
            for name, (lower, upper) in tables.items():
                if isinstance(lower, dict) and isinstance(upper, dict | None):
                    values[name] = {**lower, **(upper or {})}
        hub = HubSettings(**values)
        check_settings(hub, [server.name for server in servers])
    except SettingsError as exc:
        # The exception names the setting whose variable is wrong only in its text.
        name = next(name for name in HubSettings.model_fields if f'"{name}"' in str(exc))
        problem_text = (
            f"{NO_TABLE}: {TABLE_FORMS[name]}"
            if name in TABLE_FORMS
            else 'is not valid JSON, which lists are here: ["a", "b"]'
        )
        raise ConfigError(f"{ENV_PREFIX}{name}".upper(), problem_text) from None
    except ValidationError as exc:
        error, name = make_config_error(exc, values, "hub"), str(exc.errors()[0]["loc"][0])
        inner_key = error.key.removeprefix(f"hub.{name}").removeprefix(".")
        problem = f"{inner_key}: {error.problem}" if inner_key else error.problem
        if problem == NO_TABLE and name in TABLE_FORMS:
            problem = f"{problem}: {TABLE_FORMS[name]}"
        raise ConfigError(_describe_origin(name, command_line, environ, files), problem) from None
    except ConfigError as exc:
        raise ConfigError(_describe_origin(exc.key, command_line, environ, files), exc.problem) from None
    return hub


def _describe_origin(
    name: str, command_line: Mapping[str, Any], environ: Mapping[str, str], files: Sequence[FileContent]
) -> str:
    """Return the source of a setting's value: an option, a variable, or the key in the last file that has it."""
    if name in command_line:
        return "--" + name.replace("_", "-")
    variable = f"{ENV_PREFIX}{name}".upper()
    if any(existing.upper() == variable for existing in environ):
        return variable
    if name in OWN_TABLES:
        paths = [file.path for file in files if name in file.hub]
        return f"{paths[-1]}: {name}" if paths else f"{variable}__*"
    if name == PROFILES:
        return f"{[file.path for file in files if file.profiles][-1]}: mcp.profiles"
    paths = [file.path for file in files if name in file.hub]
    return f"{paths[-1]}: hub.{name}" if paths else f"hub.{name}"
