"""`hubbub mcp install` and `check`: the entry of the hub in a host's file of settings, and what it is good for."""

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import typer

from hubbub_cli.host_entry.direct_servers import with_direct
from hubbub_cli.host_entry.endpoint import endpoint_of
from hubbub_cli.host_entry.entry_request import Wanted
from hubbub_cli.host_entry.token import check_endpoint, token_for
from hubbub_cli.output.printer import note, print_json, say
from hubbub_cli.run.session import Settings, Usage, in_loop, run, settings_of
from hubbub_local.hosts import files
from hubbub_local.hosts.files import UnchangeableHostFile
from hubbub_local.hosts.kinds import NAME, BridgeCommand, Url

if TYPE_CHECKING:
    from hubbub_bridge.trial import Trial
    from hubbub_client.hub import Hub

NO_TOKEN = "TOKEN"  # noqa: S105 - stands for one in what is printed


def install(context: typer.Context, wanted: Wanted, *, replace: bool) -> None:
    """Set the entry. Raises Usage, TyperException, HubbubError."""
    settings = settings_of(context)
    endpoint = endpoint_of(settings, wanted.profile, wanted.server)
    wanted = with_direct(settings, wanted, replace=replace)
    entry = _bridge_entry(settings, wanted) if wanted.url is None else _http_entry(wanted, NO_TOKEN)
    try:
        # Before a token is made for it: can the file be changed?
        files.preview(wanted.file, wanted.host.section, wanted.entries(entry))
    except (UnchangeableHostFile, OSError) as error:
        raise _refused(wanted, error) from None
    if wanted.url is None:
        if wanted.shown:
            in_loop(context, check_endpoint(endpoint))
        _put(settings, wanted, entry)
        return

    async def work(hub: "Hub") -> None:
        await check_endpoint(endpoint)
        secret = await token_for(hub, settings, wanted)
        _put(settings, wanted, _http_entry(wanted, secret))

    run(context, work)


def show(context: typer.Context, wanted: Wanted) -> None:
    """Print the entry, with links that install it where the host knows such. Raises Usage."""
    settings, host = settings_of(context), wanted.host
    entry = _bridge_entry(settings, wanted) if wanted.url is None else _http_entry(wanted, NO_TOKEN)
    text = files.snippet(wanted.file.suffix, host.section, NAME, entry)
    links = [host.link(entry)] if host.link else []
    if settings.json:
        print_json({"host": host.name, "file": str(wanted.file), "snippet": text, "links": links})
        return
    say(f"# {host.title}: {wanted.file}")
    say(text.rstrip("\n"))
    for link in links:
        say(f"# or open: {link}")


def show_trial(trial: "Trial") -> None:
    """Print what came of connecting in one kind of revision."""
    if trial.failure:
        say(f"{trial.revision}: {trial.failure}")
        return
    counts = ", ".join(f"{count} {name}" for name, count in trial.counts.items())
    say(f"{trial.revision}: {trial.server}, {counts}")
    for warning in trial.warnings:
        say(f"  {warning}")


def show_questions(asked: dict[str, str]) -> None:
    """Print who is asked what servers ask, by kind."""
    words = {
        "both": "host and inbox at once",
        "host-first": "the host if it can, else the inbox",
        "host": "the host alone",
        "inbox": "the inbox alone",
    }
    for kind in sorted(asked):
        say(f"  {kind}: {words.get(asked[kind], asked[kind])}")


def http_url(settings: Settings, given: str | None, profile: str | None, server: str | None) -> str:
    """Return the URL of an endpoint. Raises Usage if the hub has none that is known."""
    from hubbub_client.transport.discovery import Where, mcp_url

    base = given or mcp_url(Where(data_dir=settings.data_dir))
    if base is None:
        raise Usage("--http: this hub does not serve hosts over HTTP; set mcp_listen, or say where with --url")
    if server:
        return f"{base.rstrip('/')}/s/{quote(server, safe='')}"
    return f"{base.rstrip('/')}/p/{quote(profile, safe='')}" if profile else base


def own_command() -> str:
    """Return the file of this command: a host is seldom started with the PATH of a shell."""
    beside = Path(sys.executable).with_name("hubbub")
    return str(beside) if beside.exists() else shutil.which("hubbub") or "hubbub"


def own_args(settings: Settings, *words: str) -> tuple[str, ...]:
    """Return the arguments with which the command reaches the same hub, without a shell's environment."""
    environ = os.environ
    data_dir = settings.data_dir or environ.get("HUBBUB_DATA_DIR")
    tls_files = [
        (option, given or environ.get(f"HUBBUB_{option.strip('-').upper()}"))
        for option, given in (("--ca", settings.ca), ("--cert", settings.cert), ("--key", settings.key))
    ]
    where = [
        ("--address", settings.address or environ.get("HUBBUB_ADDRESS")),
        ("--data-dir", data_dir and str(Path(data_dir).absolute())),
        *((option, file and str(Path(file).absolute())) for option, file in tls_files),
        ("--as", settings.name),
    ]
    return (*(word for option, value in where if value for word in (option, value)), *words)


def _bridge_entry(settings: Settings, wanted: Wanted) -> dict[str, Any]:
    token = settings.token or os.environ.get("HUBBUB_TOKEN")
    return wanted.host.stdio(
        BridgeCommand(
            command=own_command(),
            args=own_args(settings, "mcp", *wanted.shown),
            env={"HUBBUB_TOKEN": token} if token else {},  # not an argument: others see those
        )
    )


def _http_entry(wanted: Wanted, token: str) -> dict[str, Any]:
    assert wanted.url is not None
    if wanted.host.http is None:
        raise Usage(f"{wanted.host.title} only starts servers; leave --http out")
    return wanted.host.http(Url(url=wanted.url, token=token))


def _put(settings: Settings, wanted: Wanted, entry: dict[str, Any]) -> None:
    host, file = wanted.host, wanted.file
    private = wanted.url is not None or "HUBBUB_TOKEN" in str(entry)
    opened = private and files.is_open(file)
    try:
        changed, backup = files.change(file, host.section, wanted.entries(entry), private=private)
    except (UnchangeableHostFile, OSError) as error:
        raise _refused(wanted, error) from None
    if settings.json:
        shape = {"host": host.name, "file": str(file), "changed": changed, "backup": backup and str(backup)}
        print_json({**shape, "direct": list(wanted.direct), "taken_out": list(wanted.out)})
        return
    say(f"{host.title}: {file}" + ("" if changed else " has it already"))
    if backup is not None:
        note(f"as it was: {backup}")
    if opened:
        note("others could read this file; now you alone can, since it has a token")
    if wanted.out:
        note(f"taken out of it, since the hub has them: {', '.join(wanted.out)}")
    elif wanted.direct:
        again = settings.command("mcp", "install", host.name, *wanted.shown, *(["--http"] if wanted.url else []))
        note(
            f"{host.title} has {', '.join(wanted.direct)} directly as well: each tool twice, and what these ask there "
            f"does not reach the inbox. `{again} --replace` takes them out, and keeps a copy"
        )
    if changed:
        note(host.afterwards)


def _refused(wanted: Wanted, error: Exception) -> typer.TyperException:
    why = error.strerror if isinstance(error, OSError) else error
    return typer.TyperException(f"{wanted.file} is left as it is: {why}; put in what `--print` shows by hand")
