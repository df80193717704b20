"""`hubbub mcp install` and `check`: the entry of the hub in a host's file of settings, and what it is good for."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import typer

from hubbub_cli.output import note, print_json, say
from hubbub_cli.session import Settings, Usage, run, settings_of
from hubbub_local import host_files
from hubbub_local.host_files import Unchangeable
from hubbub_local.hosts import NAME, Bridge, Host, Url
from hubbub_local.places import Surroundings

if TYPE_CHECKING:
    from hubbub_bridge.checking import Trial
    from hubbub_client.hub import Hub

NO_TOKEN = "TOKEN"  # noqa: S105 - stands for one in what is printed


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be installed at a host."""

    host: Host
    profile: str | None
    server: str | None
    url: str | None
    """Where hosts reach the hub over HTTP; None for the bridge."""

    @property
    def token_name(self) -> str:
        """The name of the token that is made for the host."""
        return f"mcp-{self.host.name}"


def install(context: typer.Context, wanted: Wanted, *, only_print: bool) -> None:
    """Set the entry, or print it. Raises Usage, TyperException."""
    settings = settings_of(context)
    file = wanted.host.file(Surroundings.here())
    if wanted.url is None:
        _put(settings, wanted, file, _bridge_entry(settings, wanted), only_print=only_print)
    elif only_print:
        _put(settings, wanted, file, _http_entry(wanted, NO_TOKEN), only_print=True)
    else:
        try:
            # Before a token is made for it: can the file be changed?
            host_files.preview(file, wanted.host.section, NAME, _http_entry(wanted, NO_TOKEN))
        except (Unchangeable, OSError) as error:
            raise _refused(wanted, file, error) from None

        async def work(hub: "Hub") -> None:
            secret = await _fresh_token(hub, wanted.token_name)
            _put(settings, wanted, file, _http_entry(wanted, secret), only_print=False)

        run(context, work)


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
    from hubbub_client.discovery import Where, mcp_url

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
    files = [
        (option, given or environ.get(f"HUBBUB_{option.strip('-').upper()}"))
        for option, given in (("--ca", settings.ca), ("--cert", settings.cert), ("--key", settings.key))
    ]
    where = [
        ("--address", settings.address or environ.get("HUBBUB_ADDRESS")),
        ("--data-dir", data_dir and str(Path(data_dir).absolute())),
        *((option, file and str(Path(file).absolute())) for option, file in files),
        ("--as", settings.name),
    ]
    return (*(word for option, value in where if value for word in (option, value)), *words)


def _bridge_entry(settings: Settings, wanted: Wanted) -> dict[str, Any]:
    shown = ("--profile", wanted.profile) if wanted.profile else ("--server", wanted.server) if wanted.server else ()
    token = settings.token or os.environ.get("HUBBUB_TOKEN")
    return wanted.host.stdio(
        Bridge(
            command=own_command(),
            args=own_args(settings, "mcp", *(word for word in shown if word)),
            env={"HUBBUB_TOKEN": token} if token else {},  # not an argument: others see those
        )
    )


def _http_entry(wanted: Wanted, token: str) -> dict[str, Any]:
    assert wanted.url is not None
    if wanted.host.http is None:
        raise Usage(f"{wanted.host.title} only starts servers; leave --http out")
    return wanted.host.http(Url(url=wanted.url, token=token))


async def _fresh_token(hub: "Hub", name: str) -> str:
    """Make a token that may call, in place of one of the same name."""
    from hubbub_client.errors import AlreadyExists
    from hubbub_client.tokens import Grant

    grants = [Grant(role="caller", servers=("*",))]
    try:
        return (await hub.tokens.create(name, grants)).secret
    except AlreadyExists:
        await hub.tokens.revoke(name)
        return (await hub.tokens.create(name, grants)).secret


def _put(settings: Settings, wanted: Wanted, file: Path, entry: dict[str, Any], *, only_print: bool) -> None:
    host = wanted.host
    if only_print:
        text = host_files.snippet(file.suffix, host.section, NAME, entry)
        links = [host.link(entry)] if host.link else []
        if settings.json:
            print_json({"host": host.name, "file": str(file), "snippet": text, "links": links})
            return
        say(f"# {host.title}: {file}")
        say(text.rstrip("\n"))
        for link in links:
            say(f"# or open: {link}")
        return
    try:
        changed, backup = host_files.change(file, host.section, NAME, entry)
    except (Unchangeable, OSError) as error:
        raise _refused(wanted, file, error) from None
    if settings.json:
        print_json({"host": host.name, "file": str(file), "changed": changed, "backup": backup and str(backup)})
        return
    say(f"{host.title}: {file}" + ("" if changed else " has it already"))
    if backup is not None:
        note(f"as it was: {backup}")
    if changed:
        note(host.afterwards)


def _refused(wanted: Wanted, file: Path, error: Exception) -> typer.TyperException:
    why = error.strerror if isinstance(error, OSError) else error
    return typer.TyperException(f"{file} is left as it is: {why}; put in what `--print` shows by hand")
