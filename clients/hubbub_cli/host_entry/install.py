"""`hubbub mcp install` and `check`: the entry of the hub in a host's file of settings, and what it is good for."""

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import typer

from hubbub_cli.host_entry.direct_servers import find_direct_servers
from hubbub_cli.host_entry.endpoint import make_bridge_options
from hubbub_cli.host_entry.entry_request import EntryRequest
from hubbub_cli.host_entry.token import check_endpoint, find_or_make_token
from hubbub_cli.output.printer import note, print_json, say
from hubbub_cli.run.session import Settings, Usage, run_in_loop, run_with_hub, settings_of
from hubbub_local.hosts import files, permits
from hubbub_local.hosts.files import UnchangeableHostFile
from hubbub_local.hosts.kinds import NAME, BridgeCommand, Url
from hubbub_local.platform_dirs import Machine

if TYPE_CHECKING:
    from hubbub_bridge.trial import Trial
    from hubbub_client.hub import Hub

TOKEN_PLACEHOLDER = "TOKEN"  # noqa: S105 - stands for one in what is printed


def install_entry(context: typer.Context, request: EntryRequest, *, replace: bool) -> None:
    """Set the entry. Raises Usage, TyperException, HubbubError."""
    settings = settings_of(context)
    endpoint = make_bridge_options(settings, request.profile, request.server)
    request = find_direct_servers(settings, request, replace=replace)
    entry = (
        _make_bridge_entry(settings, request) if request.url is None else _make_http_entry(request, TOKEN_PLACEHOLDER)
    )
    try:
        # Before a token is made for it: can the file be changed?
        files.preview_changes(request.file, {(request.host.section,): request.entries(entry)})
    except (UnchangeableHostFile, OSError) as error:
        raise _make_refusal(request.file, error) from None
    if request.permit_file is not None:
        try:
            permits.preview_hook(request.permit_file)
        except (UnchangeableHostFile, OSError) as error:
            raise _make_refusal(request.permit_file, error) from None
    if request.url is None:
        if request.options:
            run_in_loop(context, check_endpoint(endpoint))
        _write_entry(settings, request, entry)
        return

    async def work(hub: "Hub") -> None:
        await check_endpoint(endpoint)
        secret = await find_or_make_token(hub, settings, request)
        _write_entry(settings, request, _make_http_entry(request, secret))

    run_with_hub(context, work)


def print_entry(context: typer.Context, request: EntryRequest) -> None:
    """Print the entry, with links that install it where the host knows such. Raises Usage."""
    settings, host = settings_of(context), request.host
    entry = (
        _make_bridge_entry(settings, request) if request.url is None else _make_http_entry(request, TOKEN_PLACEHOLDER)
    )
    text = files.render_snippet(request.file.suffix, host.section, NAME, entry)
    links = [host.link(entry)] if host.link else []
    if settings.json:
        own = {"hook_file": str(request.permit_file), "hook": permits.render_hook(), "prompt_tool": permits.PROMPT_TOOL}
        also = own if request.permit_file is not None else {}
        print_json({"host": host.name, "file": str(request.file), "snippet": text, "links": links, **also})
        return
    say(f"# {host.title}: {request.file}")
    say(text.rstrip("\n"))
    if request.permit_file is not None:
        say(f"# {request.permit_file}")
        say(permits.render_hook().rstrip("\n"))
        say(f"# for `claude -p`, without the hook: --permission-prompt-tool {permits.PROMPT_TOOL}")
    for link in links:
        say(f"# or open: {link}")


def print_trial(trial: "Trial") -> None:
    """Print what came of connecting in one kind of revision."""
    if trial.failure:
        say(f"{trial.revision}: {trial.failure}")
        return
    counts = ", ".join(f"{count} {name}" for name, count in trial.counts.items())
    say(f"{trial.revision}: {trial.server}, {counts}")
    for warning in trial.warnings:
        say(f"  {warning}")


def print_permits(trial: "Trial", machine: Machine) -> None:
    """Say whether Claude Code can ask for permission through the hub, if its settings say that it does."""
    file = permits.find_settings_file(machine)
    if trial.permits:
        say(f"  permits: {permits.PERMIT}; Claude Code {'asks' if permits.has_hook(file) else 'does not ask'} there")
    elif permits.has_hook(file):
        say(f"  permits: {file} asks {permits.PERMIT}, which is not there: set `people = true` for the profile")


def print_questions(routes: dict[str, str]) -> None:
    """Print who is asked what servers ask, by kind."""
    descriptions = {
        "both": "host and inbox at once",
        "host-first": "the host if it can, else the inbox",
        "host": "the host alone",
        "inbox": "the inbox alone",
    }
    for kind in sorted(routes):
        say(f"  {kind}: {descriptions.get(routes[kind], routes[kind])}")


def make_http_url(settings: Settings, given: str | None, profile: str | None, server: str | None) -> str:
    """Return the URL of an endpoint. Raises Usage if the hub has none that is known."""
    from hubbub_client.transport.discovery import mcp_url

    base = given or mcp_url(settings.where)
    if base is None:
        raise Usage("--http: this hub does not serve hosts over HTTP; set mcp_listen, or say where with --url")
    if server:
        return f"{base.rstrip('/')}/s/{quote(server, safe='')}"
    return f"{base.rstrip('/')}/p/{quote(profile, safe='')}" if profile else base


def find_own_command() -> str:
    """Return the file of this command: a host is seldom started with the PATH of a shell."""
    beside = Path(sys.executable).with_name("hubbub")
    return str(beside) if beside.exists() else shutil.which("hubbub") or "hubbub"


def make_own_args(settings: Settings, *words: str) -> tuple[str, ...]:
    """Return the arguments with which the command reaches the same hub, without a shell's environment."""
    variables = os.environ
    data_dir = settings.data_dir or variables.get("HUBBUB_DATA_DIR")
    tls_files = [
        (option, given or variables.get(f"HUBBUB_{option.strip('-').upper()}"))
        for option, given in (("--ca", settings.ca), ("--cert", settings.cert), ("--key", settings.key))
    ]
    options = [
        ("--address", settings.address or variables.get("HUBBUB_ADDRESS")),
        ("--data-dir", data_dir and str(Path(data_dir).absolute())),
        *((option, file and str(Path(file).absolute())) for option, file in tls_files),
        ("--as", settings.name),
    ]
    return (*(word for option, value in options if value for word in (option, value)), *words)


def _make_bridge_entry(settings: Settings, request: EntryRequest) -> dict[str, Any]:
    token = settings.token or os.environ.get("HUBBUB_TOKEN")
    return request.host.stdio(
        BridgeCommand(
            command=find_own_command(),
            args=make_own_args(settings, "mcp", *request.options),
            env={"HUBBUB_TOKEN": token} if token else {},  # not an argument: others see those
        )
    )


def _make_http_entry(request: EntryRequest, token: str) -> dict[str, Any]:
    assert request.url is not None
    if request.host.http is None:
        raise Usage(f"{request.host.title} only starts servers; leave --http out")
    return request.host.http(Url(url=request.url, token=token))


def _write_entry(settings: Settings, request: EntryRequest, entry: dict[str, Any]) -> None:
    """Change the host's file, and say what was done, what is there twice, and what to do next."""
    host, file = request.host, request.file
    private = request.url is not None or "HUBBUB_TOKEN" in str(entry)
    was_readable = private and files.is_readable_by_others(file)
    try:
        changed, backup = files.change_entries(file, host.section, request.entries(entry), private=private)
    except (UnchangeableHostFile, OSError) as error:
        raise _make_refusal(file, error) from None
    hook = _install_hook(request.permit_file) if request.permit_file is not None else {}
    if settings.json:
        report = {"host": host.name, "file": str(file), "changed": changed, "backup": backup and str(backup), **hook}
        print_json({**report, "direct": list(request.direct), "taken_out": list(request.taken_out)})
        return
    say(f"{host.title}: {file}" + ("" if changed else " has it already"))
    if backup is not None:
        note(f"as it was: {backup}")
    if was_readable:
        note("others could read this file; now you alone can, since it has a token")
    if request.taken_out:
        note(f"taken out of it, since the hub has them: {', '.join(request.taken_out)}")
    elif request.direct:
        same_command = settings.command(
            "mcp", "install", host.name, *request.options, *(["--http"] if request.url else [])
        )
        note(
            f"{host.title} has {', '.join(request.direct)} directly as well: each tool twice, and what these ask there "
            f"does not reach the inbox. `{same_command} --replace` takes them out, and keeps a copy"
        )
    if hook:
        _say_of_permits(hook)
    if changed or hook.get("hook_changed"):
        note(host.afterwards)


def _install_hook(file: Path) -> dict[str, Any]:
    """Put the hook into the host's settings; return what was done."""
    try:
        changed, backup = permits.install_hook(file)
    except (UnchangeableHostFile, OSError) as error:
        raise _make_refusal(file, error) from None
    return {
        "hook_file": str(file),
        "hook_changed": changed,
        "hook_backup": backup and str(backup),
        "prompt_tool": permits.PROMPT_TOOL,
    }


def _say_of_permits(hook: dict[str, Any]) -> None:
    say(f"hook: {hook['hook_file']}" + ("" if hook["hook_changed"] else " has it already"))
    if hook["hook_backup"]:
        note(f"as it was: {hook['hook_backup']}")
    say(f"for `claude -p`, without the hook: --permission-prompt-tool {hook['prompt_tool']}")
    note("the profile needs `people = true`; `hubbub mcp check` says whether it has that")


def _make_refusal(file: Path, error: Exception) -> typer.TyperException:
    why = error.strerror if isinstance(error, OSError) else error
    return typer.TyperException(f"{file} is left as it is: {why}; put in what `--print` shows by hand")
