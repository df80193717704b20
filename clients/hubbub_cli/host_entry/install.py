"""`hubbub mcp install`: the entry of the hub in a host's file of settings."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import typer

from hubbub_cli.host_entry.direct_servers import note_direct_servers
from hubbub_cli.host_entry.endpoint import make_bridge_options
from hubbub_cli.host_entry.entry_request import EntryRequest
from hubbub_cli.host_entry.token import check_endpoint, find_or_make_token
from hubbub_cli.output.printer import note, print_json, say
from hubbub_cli.run.session import Settings, Usage, get_settings, run_in_loop, run_with_hub
from hubbub_local.hosts import files, permits
from hubbub_local.hosts.files import UnchangeableHostFile
from hubbub_local.hosts.kinds import NAME, BridgeCommand, Url

if TYPE_CHECKING:
    from hubbub_client.hub import Hub

TOKEN_PLACEHOLDER = "TOKEN"  # noqa: S105 - stands for one in what is printed


def install_entry(context: typer.Context, request: EntryRequest, *, replace: bool) -> None:
    """Write the entry into the host's files, with a token of its own if the host reaches the hub by one.

    Nothing is written, and no token made, unless each file can be changed and the hub has the profile or server.
    Raises Usage, TyperException, HubbubError.
    """
    settings = get_settings(context)
    endpoint = make_bridge_options(settings, request.profile, request.server)
    request = note_direct_servers(settings, request, replace=replace)
    entry = _make_entry(settings, request)
    for file, changes in request.make_changes(entry).items():
        try:
            # Before a token is made for it: can the file be changed?
            files.preview_changes(file, changes)
        except (UnchangeableHostFile, OSError) as error:
            raise _make_unchanged_error(file, error) from None
    if request.permit_file is not None:
        try:
            permits.preview_hook(request.permit_file)
        except (UnchangeableHostFile, OSError) as error:
            raise _make_unchanged_error(request.permit_file, error) from None
    if request.url is None or request.log_in:
        if request.endpoint_options:
            run_in_loop(context, check_endpoint(endpoint))
        _write_entry(settings, request, entry)
        return

    async def install_with_token(hub: "Hub") -> None:
        """Find or make a token at the hub, and write the entry with this token."""
        await check_endpoint(endpoint)
        secret = await find_or_make_token(hub, settings, request)
        _write_entry(settings, request, _make_http_entry(request, secret))

    run_with_hub(context, install_with_token)


def print_entry(context: typer.Context, request: EntryRequest) -> None:
    """Print the entry without writing it, and the link that installs it if the host has one. Raises Usage."""
    settings, host = get_settings(context), request.host
    entry = _make_entry(settings, request)
    text = files.render_snippet(request.file.suffix, host.section, NAME, entry)
    links = [host.link(entry)] if host.link else []
    if settings.json:
        hook = {
            "hook_file": str(request.permit_file),
            "hook": permits.render_hook(),
            "prompt_tool": permits.PROMPT_TOOL,
        }
        also = hook if request.permit_file is not None else {}
        log_in = {"log_in": host.log_in} if request.log_in else {}
        print_json({"host": host.name, "file": str(request.file), "snippet": text, "links": links, **log_in, **also})
        return
    say(f"# {host.title}: {request.file}")
    say(text.rstrip("\n"))
    if request.permit_file is not None:
        say(f"# {request.permit_file}")
        say(permits.render_hook().rstrip("\n"))
        say(f"# for `claude -p`, without the hook: --permission-prompt-tool {permits.PROMPT_TOOL}")
    if request.log_in:
        say(f"# then log in: {host.log_in}")
    for link in links:
        say(f"# or open: {link}")


def make_http_url(
    settings: Settings, given: str | None, profile: str | None, server: str | None, *, log_in: bool = False
) -> str:
    """Return the URL of an endpoint for hosts; with `log_in`, the one at which they log in.

    Raises Usage if the hub has no known URL, or lets no host log in.
    """
    from hubbub_client.transport.discovery import mcp_url

    hub_url = mcp_url(settings.where)
    base = given or (_find_login_url(hub_url) if hub_url and log_in else hub_url)
    if base is None:
        raise Usage("this hub does not serve hosts over HTTP; set mcp_listen, or say where with --url")
    if server:
        return f"{base.rstrip('/')}/s/{quote(server, safe='')}"
    return f"{base.rstrip('/')}/p/{quote(profile, safe='')}" if profile else base


def _find_login_url(hub_url: str) -> str:
    """Return the URL at which hosts log in. Raises Usage if the hub lets no host log in."""
    from hubbub_cli.host_entry.entry_trial import find_login_url

    found = find_login_url(hub_url)
    if found is None:
        raise Usage(
            "--login: this hub lets no host log in; set `mcp_login = true` in its configuration, "
            "or use --http, which makes a token"
        )
    return found


def find_own_command() -> str:
    """Return the path of this command: a host is seldom started with the PATH of a shell."""
    beside = Path(sys.executable).with_name("hubbub")
    return str(beside) if beside.exists() else shutil.which("hubbub") or "hubbub"


def make_own_args(settings: Settings, *words: str) -> tuple[str, ...]:
    """Return the arguments with which `hubbub WORDS` reaches the same hub without the environment of this shell."""
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


def _make_entry(settings: Settings, request: EntryRequest) -> dict[str, Any]:
    """Return the host's entry of the hub; TOKEN_PLACEHOLDER stands in it for a token that is still to be made."""
    if request.url is None:
        return _make_bridge_entry(settings, request)
    return _make_http_entry(request, None if request.log_in else TOKEN_PLACEHOLDER)


def _make_bridge_entry(settings: Settings, request: EntryRequest) -> dict[str, Any]:
    """Return the entry that has the host start the bridge to this hub."""
    token = settings.token or os.environ.get("HUBBUB_TOKEN")
    return request.host.stdio(
        BridgeCommand(
            command=find_own_command(),
            args=make_own_args(settings, "mcp", *request.endpoint_options),
            env={"HUBBUB_TOKEN": token} if token else {},  # not an argument: others see those
        )
    )


def _make_http_entry(request: EntryRequest, token: str | None) -> dict[str, Any]:
    """Return the entry with the hub's URL, and a token if there is one. Raises Usage if the host takes no URL."""
    assert request.url is not None
    if request.host.http is None:
        raise Usage(f"{request.host.title} takes no address in its file; leave --http and --login out")
    return request.host.http(Url(url=request.url, token=token))


def _write_entry(settings: Settings, request: EntryRequest, entry: dict[str, Any]) -> None:
    """Change the host's files, and print what was done, which servers the host also has directly, and what to do next.

    Raises TyperException for a file that cannot be changed.
    """
    host, file = request.host, request.file
    # With a token in it, a file is for its owner alone.
    private = "HUBBUB_TOKEN" in str(entry) or (request.url is not None and not request.log_in)
    was_readable = private and files.is_readable_by_others(file)
    backups: dict[Path, Path] = {}
    ways_back: list[tuple[str, ...]] = []
    for each, changes in request.make_changes(entry).items():
        try:
            is_changed, backup = files.change_file(each, changes, private=private and each == file)
        except (UnchangeableHostFile, OSError) as error:
            raise _make_unchanged_error(each, error) from None
        if backup is not None:
            backups[each] = backup
        if is_changed:
            ways_back.append(("rm", str(each)) if backup is None else ("mv", str(backup), str(each)))
    changed = bool(ways_back)
    hook = _install_hook(request.permit_file) if request.permit_file is not None else {}
    if settings.json:
        backup = str(backups[file]) if file in backups else None
        report = {"host": host.name, "file": str(file), "changed": changed, "backup": backup, **hook}
        off = {"taken_out": request.switch_off.taken_out, "switched_off": request.switch_off.stay}
        also = {str(each): str(copy) for each, copy in backups.items() if each != file}
        print_json({**report, "direct": list(request.direct), **off, **({"other_backups": also} if also else {})})
        return
    say(f"{host.title}: {file}" + ("" if changed else " has it already"))
    for each, copy in backups.items():
        note(f"as it was{'' if each == file else f' ({each})'}: {copy}")
    if was_readable:
        note("others could read this file; now you alone can, since it has a token")
    _report_direct_servers(settings, request, ways_back)
    if hook:
        _report_permits(hook)
    if changed or hook.get("hook_changed"):
        note(host.afterwards)
    if request.log_in:
        note(f"then log in: {host.log_in}; its page asks for a code, which `hubbub mcp login` prints")
    elif host.listing is not None:
        note(f"to see whether it works: {settings.command('mcp', 'check', host.name)}")


def _report_direct_servers(settings: Settings, request: EntryRequest, ways_back: list[tuple[str, ...]]) -> None:
    """Print which servers of the hub the host also has directly, or that they were switched off, and how to go back.

    `ways_back` are the commands that restore the files as they were.
    """
    host, off = request.host, request.switch_off
    if off.taken_out:
        note(f"taken out, since the hub has them: {', '.join(off.taken_out)}")
    if off.stay:
        note(f"switched off there, since the hub has them: {', '.join(off.stay)}")
    if off.changes:
        for words in ways_back:
            note(f"to go back, also without the hub: {shlex.join(words)}")
    elif request.direct:
        same_command = settings.command(
            "mcp", "install", host.name, *request.endpoint_options, *request.connection_options
        )
        note(
            f"{host.title} has {', '.join(request.direct)} directly as well: each tool twice, and what these ask there "
            f"does not reach the inbox. `{same_command} --replace` switches them off, and keeps a copy"
        )


def _install_hook(file: Path) -> dict[str, Any]:
    """Put the hook, which asks people for permission, into the host's settings; return what was done, for JSON.

    Raises TyperException.
    """
    try:
        changed, backup = permits.install_hook(file)
    except (UnchangeableHostFile, OSError) as error:
        raise _make_unchanged_error(file, error) from None
    return {
        "hook_file": str(file),
        "hook_changed": changed,
        "hook_backup": backup and str(backup),
        "prompt_tool": permits.PROMPT_TOOL,
    }


def _report_permits(hook: dict[str, Any]) -> None:
    """Print where the hook is that asks for permission, and what it needs."""
    say(f"hook: {hook['hook_file']}" + ("" if hook["hook_changed"] else " has it already"))
    if hook["hook_backup"]:
        note(f"as it was: {hook['hook_backup']}")
    say(f"for `claude -p`, without the hook: --permission-prompt-tool {hook['prompt_tool']}")
    note("the profile needs `people = true`; `hubbub mcp check` says whether it has that")


def _make_unchanged_error(file: Path, error: Exception) -> typer.TyperException:
    """Return the error for a file that could not be changed."""
    reason = error.strerror if isinstance(error, OSError) else error
    return typer.TyperException(f"{file} is left as it is: {reason}; put in what `--print` shows by hand")
