"""What the entry of a host stands on: an endpoint that is there, and over HTTP a token of the entry's own."""

import hashlib
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import typer

from hubbub_cli.output.printer import note
from hubbub_client.errors import HubbubError, Unavailable, Unimplemented
from hubbub_client.services.tokens import Grant
from hubbub_local.hosts.kinds import NAME
from hubbub_local.hosts.servers import UnreadableFile, read_settings

if TYPE_CHECKING:
    from hubbub_bridge.options import BridgeOptions
    from hubbub_cli.host_entry.entry_request import EntryRequest
    from hubbub_cli.run.session import Settings
    from hubbub_client.hub import Hub

MARK_LENGTH: Final = 8
"""Digits that tell the tokens of several files of one host apart."""

BEARER: Final = "Bearer "


async def check_endpoint(endpoint: "BridgeOptions") -> None:
    """Check that the hub has the profile or the server of an endpoint. Raises HubbubError if it has not.

    Without a hub, the configuration file must have the profile: raises TyperException if not. A server is then not
    checked.
    """
    from hubbub_bridge.uplink import fetch_question_routes

    try:
        await fetch_question_routes(endpoint)
    except Unimplemented:
        pass  # an older hub has no endpoints to ask for
    except Unavailable:
        if endpoint.profile is not None:
            _check_configured_profile(endpoint.profile)


def _check_configured_profile(profile: str) -> None:
    """Raise TyperException unless the configuration file of this machine has a profile of this name."""
    from hubbub_cli.commands.config import choose_config_file
    from hubbub_local import config_file

    file = choose_config_file(None)
    profiles: Any = {}
    with suppress(config_file.Unchangeable, OSError):
        profiles = config_file.parse_config(config_file.read_config(file)).get("mcp", {}).get("profiles", {})
    if profile != "default" and profile not in profiles:
        profile_names = f"it has {', '.join(profiles)}" if profiles else "it has none"
        raise typer.TyperException(
            f"--profile {profile}: no hub runs, and {file} has no profile of this name ({profile_names}); "
            "start the hub that has it first, or add it there"
        )


def make_token_name(request: "EntryRequest") -> str:
    """Return the name of the token for a file of a host on this machine; each file of a host has its own token."""
    where = f"{socket.gethostname()}\0{request.file.resolve()}"
    return f"mcp-{request.host.name}-{hashlib.sha256(where.encode()).hexdigest()[:MARK_LENGTH]}"


async def find_or_make_token(hub: "Hub", settings: "Settings", request: "EntryRequest") -> str:
    """Return the token in the host's file if the hub accepts it and it has the right grants; else make a token.

    Grants say what a token may do: this one may only call, and only what the host is to see. An older token of the same
    name is revoked. Raises HubbubError.
    """
    name = make_token_name(request)
    grants = (Grant(role="caller", servers=(request.server or "*",)),)
    old_token = _read_token(request.file, request.host.section)
    caller = await _find_caller(settings, old_token) if old_token else None
    if old_token and caller is not None and caller.grants == grants:
        return old_token
    if any(token.name == name for token in await hub.tokens.list()):
        await hub.tokens.revoke(name)
        note(f"the token {name} of before has ended; sessions with it end, too: start them again")
    elif caller is not None:
        note(f"the token of before, {caller.name}, may do something else and stays: hubbub tokens revoke {caller.name}")
    return (await hub.tokens.create(name, grants)).secret


async def _find_caller(settings: "Settings", token: str) -> Any:
    """Return the caller that a token stands for; None if the hub does not accept it."""
    with suppress(HubbubError):
        async with replace(settings, token=token, name=None).connect(patient=False) as hub:
            return await hub.admin.whoami()
    return None


def _read_token(file: Path, section: str) -> str | None:
    """Return the token that the hub's entry in a file has; None if it has none, or the file cannot be read."""
    with suppress(UnreadableFile):
        entry = _get_member(_get_member(read_settings(file), section), NAME)
        for key in ("headers", "http_headers"):
            header = _get_member(_get_member(entry, key), "Authorization")
            if isinstance(header, str) and header.startswith(BEARER):
                return header.removeprefix(BEARER)
    return None


def _get_member(table: object, name: str) -> object:
    """Return a member of a table; None if it has none, or is no table."""
    return cast("dict[str, object]", table).get(name) if isinstance(table, dict) else None
