"""Renders the setting in a configuration file that would allow a refused server."""

import json
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any, Final

from hubbubd.config.hub import HubSettings
from hubbubd.config.policy.commands import REST_PATTERN
from hubbubd.config.policy.hosts import is_safe_to_advise
from hubbubd.config.servers.server import ServerConfig
from hubbubd.errors import PermissionDenied


def render_allowing_setting(refusal: PermissionDenied, config: ServerConfig, hub: HubSettings) -> str | None:
    """Return the TOML of the setting that would allow a refused server; None where no setting could or should do so.

    ARGUMENTS_PLACEHOLDER stands for the server's arguments: they may be secret, and others see the refusal.
    """
    match refusal.reason:
        case "COMMAND_NOT_ALLOWED" if _is_allowable_command(config.command) and REST_PATTERN not in config.args:
            listed_commands = [_render_toml_command(each.model_dump()) for each in hub.allow_commands]
            args = ARGUMENTS_PLACEHOLDER if config.args else ()
            new_command = {**config.model_dump(include={"command", *_COMMAND_PARTS}), "args": args}
            return _render_toml_setting("allow_commands", [*listed_commands, _render_toml_command(new_command)])
        case "VARIABLE_NOT_ALLOWED" if refusal.metadata.get("variable", "").isidentifier():
            return _render_toml_setting(
                "allow_variables", [*map(_render_toml_string, (*hub.allow_variables, refusal.metadata["variable"]))]
            )
        case "HOST_NOT_ALLOWED" if _is_allowable_host(host := refusal.metadata.get("host", ""), hub):
            return _render_toml_setting("allow_hosts", [*map(_render_toml_string, (*hub.allow_hosts, host))])
        case _:
            return None


ARGUMENTS_PLACEHOLDER: Final = ("...",)
"""Stands for the arguments of a refused command."""

_COMMAND_PARTS = ("args", "env", "cwd")


def _is_allowable_command(command: str | None) -> bool:
    """Return whether `allow_commands` accepts a command: a name, or an absolute path, without references."""
    return command is not None and "${" not in command and ("/" not in command or command.startswith("/"))


def _is_allowable_host(host: str, hub: HubSettings) -> bool:
    """Return whether to advise allowing a host: it serves no cloud's secrets, and the operator does not deny it."""
    try:
        address = ip_address(host)
    except ValueError:
        return host.isascii() and host.replace(".", "").replace("-", "").isalnum() and host not in hub.deny_hosts
    return is_safe_to_advise(address) and not hub.deny_hosts  # which may have a network around the address


def _render_toml_command(parts: dict[str, Any]) -> str:
    """Return an entry of `allow_commands` in TOML; `parts` are those of such an entry, or of a server."""
    listed_values = {  # an entry has a list of directories, a server has one directory
        key: list(value) if key != "cwd" or not isinstance(value, str) else [value]
        for key, value in parts.items()
        if key in _COMMAND_PARTS and value
    }
    if not listed_values:
        return _render_toml_string(parts["command"])
    lists = "".join(
        f", {key} = [{', '.join(map(_render_toml_string, values))}]" for key, values in listed_values.items()
    )
    return f"{{ command = {_render_toml_string(parts['command'])}{lists} }}"


def _render_toml_setting(name: str, entries: Iterable[str]) -> str:
    """Return a list of entries as a setting of `[hub]` in TOML."""
    return f"[hub]\n{name} = [\n" + "".join(f"  {entry},\n" for entry in entries) + "]"


def _render_toml_string(value: str) -> str:
    """Return a string in TOML."""
    # A JSON string is a basic string of TOML, except that TOML wants DEL escaped as well (TOML 1.0, String).
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
