"""`hubbub servers add --save`: a server in the configuration file instead of one that is added over the API."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from anyio import to_thread

from hubbub_cli.commands.config import choose_config_file
from hubbub_cli.output.printer import note
from hubbub_cli.run.session import Settings, Usage
from hubbub_client.errors import AlreadyExists
from hubbub_client.transport.discovery import discover_all
from hubbub_local import config_file
from hubbub_local.config_file import Unchangeable

if TYPE_CHECKING:
    from hubbub_client.data.records import Server
    from hubbub_client.data.specs import ServerSpec
    from hubbub_client.hub import Hub


def offer_keyring(settings: Settings, spec: "ServerSpec") -> "ServerSpec":
    """Return a spec with its secrets in the keyring, if a person at the terminal agrees."""
    from hubbub_cli.machine import server_import

    stored_spec = server_import.move_secrets_to_keyring(settings, spec.name, spec.to_json())
    return replace(spec, **{key: stored_spec[key] for key in ("args", "env", "headers", "url") if key in stored_spec})


async def save_server(hub: "Hub", settings: Settings, spec: "ServerSpec") -> "Server":
    """Write a server into the configuration file of the hub, have the hub read it, and return the server.

    Raises Usage for a hub on another machine, TyperException for a file that cannot be changed, or that is changed and
    not read by the hub, and HubbubError.
    """
    _check_is_local(settings)
    config = (await hub.admin.status()).config
    files = [Path(each) for each in config.files] if config is not None else []
    toml_files = [each for each in files if each.suffix.lower() == ".toml"]
    file = toml_files[0] if toml_files else choose_config_file(None)
    if spec.name in {server.name for server in await hub.servers.list()}:
        raise AlreadyExists(f"a server {spec.name!r} exists already", reason="SERVER_EXISTS")
    await to_thread.run_sync(_write_server, file, spec)
    note(f"written into {file}")
    if not toml_files:
        raise typer.TyperException(f"the hub that runs does not read {file}; start it again with --config {file}")
    await hub.admin.reload()
    return await hub.servers.get(spec.name)


def _check_is_local(settings: Settings) -> None:
    """Raise Usage if the hub is on another machine."""
    for each in discover_all(settings.where):
        if not each.is_local:
            raise Usage(f"--save: the hub at {each.address} has its configuration on another machine; add it there")


def _write_server(file: Path, spec: "ServerSpec") -> None:
    """Add a server to a configuration file. Raises TyperException."""
    from hubbub_cli.machine.server_import import read_config, replace_checked

    # The name is the key of its table; `withheld` names values that a hub does not show, and is no option.
    options = {key: value for key, value in spec.to_json().items() if key not in ("name", "withheld")}
    before = read_config(file)
    try:
        text = config_file.add_server(before, spec.name, options)
    except Unchangeable as exc:
        raise typer.TyperException(f"{file} is left as it was: {exc}") from None
    replace_checked(file, before, text)
