"""`hubbub config`: the configuration file of the hub on this machine."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubbub_cli.output.printer import note, print_json, say
from hubbub_cli.run.session import Settings, Usage, get_settings
from hubbub_cli.syntax.group import Commands
from hubbub_local.platform_dirs import Machine, find_config_file, list_config_files

if TYPE_CHECKING:
    from hubbub_client.services.admin import ConfigStatus

app = Commands("The configuration file of the hub on this machine.")

File = Annotated[str | None, typer.Option("--file", metavar="FILE", help="Another file than the hub's default one.")]


def choose_config_file(file_option: str | None) -> Path:
    """Return the configuration file: as given, else the first TOML file of HUBBUBD_CONFIG, else the default one."""
    if file_option is not None:
        return Path(file_option).expanduser().absolute()
    tomls = [each.absolute() for each in list_config_files(os.environ) if each.suffix.lower() == ".toml"]
    return tomls[0] if tomls else find_config_file(Machine.here())


@app.command(example="config path")
def path(context: typer.Context) -> None:
    """Show where the configuration file is."""
    file = choose_config_file(None)
    read = _list_files_of_hub(get_settings(context))
    if get_settings(context).json:
        print_json({"file": str(file), "exists": file.exists(), "hub_reads": read})
        return
    say(str(file))
    if not file.exists():
        note("it is not there yet; `hubbub init` or `hubbub config set` makes it")
    if read is not None and not _is_listed(file, read):
        note(f"the hub that runs reads {', '.join(read) or 'no file'}")


@app.command(example="config show")
def show(context: typer.Context, file: File = None) -> None:
    """Show the configuration file as the hub reads it, without secrets."""
    from hubbub_cli.machine.server_import import read_config
    from hubbub_local import config_file as files

    chosen = choose_config_file(file)
    try:
        shown = files.mask_secrets(read_config(chosen))
    except files.Unchangeable as exc:
        raise typer.TyperException(f"{chosen}: {exc}") from None
    if get_settings(context).json:
        print_json({"file": str(chosen), "configuration": shown})
        return
    note(f"# {chosen}" + ("" if chosen.exists() else ": it is not there yet"))
    if shown:
        say(files.render_config(shown).rstrip("\n"))


@app.command("set", example="config set hub.log_level debug")
def set_(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Such as hub.log_level or servers.NAME.call_timeout_s.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="As TOML has it; text needs no quotes.")],
    file: File = None,
) -> None:
    """Set one value of the configuration file, if the hub takes it."""
    from hubbub_cli.machine.server_import import read_config, replace_checked
    from hubbub_local import config_file as files

    chosen = choose_config_file(file)
    old_text = read_config(chosen)
    try:
        new_text = files.set_value(
            old_text, key, _offer_keyring(get_settings(context), files.split_key(key), files.parse_value(value))
        )
    except files.Unchangeable as exc:
        raise Usage(f"{chosen} is left as it was: {exc}") from None
    if new_text == old_text:
        backup = None
        note(f"{chosen} has it already")
    else:
        backup = replace_checked(chosen, old_text, new_text)
    if get_settings(context).json:
        changed = new_text != old_text
        print_json({"file": str(chosen), "changed": changed, "backup": backup and str(backup)})
    elif new_text != old_text:
        say(f"{chosen}: {key} is set")
        print_when_effective(get_settings(context), chosen)


@app.command(example="config edit")
def edit(context: typer.Context, file: File = None) -> None:
    """Open the configuration file in your editor (VISUAL, EDITOR), and take it if the hub does."""
    from hubbub_cli.machine.server_import import read_config, replace_unchanged
    from hubbub_local.config_file import HEADER

    settings = get_settings(context)
    chosen = choose_config_file(file)
    old_text = read_config(chosen)
    masked_text = old_text or HEADER
    directory = Path(tempfile.mkdtemp(prefix="hubbub-"))  # for its owner alone
    copy = directory / chosen.name
    copy.write_text(masked_text, encoding="utf-8", newline="")
    written = False
    try:
        new_text = _edit_until_accepted(settings, chosen, copy, masked_text)
        backup = replace_unchanged(chosen, old_text, new_text) if new_text != masked_text else None
        written = True
    finally:
        if written or _has_nothing_to_keep(copy, masked_text):
            shutil.rmtree(directory, ignore_errors=True)
        else:
            note(f"what you wrote is in {copy}")
    if new_text == masked_text:
        note(f"{chosen} is as it was")
        return
    if settings.json:
        print_json({"file": str(chosen), "changed": True, "backup": backup and str(backup)})
        return
    say(f"{chosen} is changed")
    print_when_effective(settings, chosen)


@app.command("import", example="config import claude-code --dry-run")
def import_(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A host such as cursor, or a file of one.")],
    yes: Annotated[bool, typer.Option("--yes", help="Take all that are new, and ask nothing.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what there is.")] = False,
    file: File = None,
) -> None:
    """Take servers of a host, or of a file of one, into the configuration file."""
    from hubbub_cli.machine import server_import
    from hubbub_local.hosts.offers import find_servers_of_file
    from hubbub_local.hosts.servers import TITLES, Trouble, list_server_tables, read_servers

    settings = get_settings(context)
    if source in TITLES:
        tables = [place for place in list_server_tables(Machine.here(), Path.cwd()) if place.host == source]
        found_servers = [each for place in tables for each in read_servers(place)]
        if not found_servers:
            where = " or ".join(str(place.file) for place in tables)
            raise typer.TyperException(f"{TITLES[source]} has no servers: there are none in {where}")
    elif not ("/" in source or "." in source or Path(source).exists()):
        raise Usage(f"{source!r} is neither a file nor one of {', '.join(sorted(TITLES))}")
    else:
        found_servers = find_servers_of_file(Machine.here(), Path.cwd(), Path(source).expanduser())
    file_words = ("--file", file) if file is not None else ()
    same_command = settings.command("config", "import", source, *file_words)
    request = server_import.ImportRequest(
        settings=settings, file=choose_config_file(file), everything=yes, dry_run=dry_run, same_command=same_command
    )
    outcome = server_import.import_servers(request, found_servers)
    if outcome is not None:
        server_import.print_outcome(request, outcome)
        if outcome.imported and not settings.json:
            print_when_effective(settings, request.file)
    elif all(isinstance(each, Trouble) for each in found_servers):
        raise typer.Exit(1)
    elif not dry_run and not settings.json:
        note("nothing to do")


def fetch_config_status(settings: Settings) -> "ConfigStatus | None":
    """Return what the hub that runs reports of its configuration; None if the hub is too old to report it.

    Raises HubbubError.
    """
    import asyncio

    async def fetch_status() -> "ConfigStatus | None":
        """Return what a hub that answers at once reports of its configuration; None if it reports nothing."""
        async with settings.connect(patient=False) as hub:
            return (await hub.admin.status()).config

    return asyncio.run(fetch_status())


def _list_files_of_hub(settings: Settings) -> list[str] | None:
    """Return the configuration files of the hub that runs; None if no hub runs, or the hub does not say."""
    from hubbub_client.errors import HubbubError

    try:
        status = fetch_config_status(settings)
    except HubbubError:
        return None
    return list(status.files) if status is not None else None


def print_when_effective(settings: Settings, file: Path) -> None:
    """Print when the hub that runs takes over a changed configuration file, or that the hub does not read this file."""
    from hubbub_client.errors import HubbubError, Unavailable

    try:
        status = fetch_config_status(settings)
    except Unavailable:
        note("no hub runs; start one: hubbub up -d")
        return
    except HubbubError as exc:
        note(f"whether the hub that runs reads it is not known: {exc}")
        return
    if status is None:
        note("the hub that runs does not say which files it reads")
    elif not _is_listed(file, status.files):
        read = ", ".join(status.files) or "no file"
        note(f"the hub that runs does not read this file: it reads {read}. Start it with --config {file}")
    elif status.watched:
        note("the hub that runs reads it within a few seconds; `hubbub reload` does it now, and shows what comes of it")
    else:
        note("have the hub that runs read it: hubbub reload")


def _is_listed(file: Path, files: Iterable[str]) -> bool:
    """Return whether a file is among others; links are resolved, so that two names of one file count as equal."""
    return any(Path(each).resolve() == file.resolve() for each in files)


def _edit_until_accepted(settings: Settings, chosen: Path, copy: Path, old_text: str) -> str:
    """Open a copy of the file `chosen` in the editor until the hub would accept its text, and return the text.

    `old_text` is the text before; it is returned if nothing is changed. Raises TyperException if the editor fails, or
    the person does not want to edit again.
    """
    from hubbub_cli.machine.server_import import find_problem

    while True:
        _run_editor(copy)
        try:
            edited_text = copy.read_bytes().decode()
        except (OSError, ValueError) as exc:
            raise typer.TyperException(f"{chosen} is left as it was: {exc}") from None
        if edited_text == old_text:
            return edited_text
        problem = find_problem(chosen, edited_text)
        if problem is None:
            return edited_text
        if not problem.refused:
            note(f"a server of it cannot be connected, as seen from here: {problem.message}")
            return edited_text
        note(f"the hub does not take it: {problem.message}")
        if not settings.interactive or not _ask_to_edit_again():
            raise typer.TyperException(f"{chosen} is left as it was")


def _has_nothing_to_keep(copy: Path, old_text: str) -> bool:
    """Return whether a copy still has the text with which it was made, or cannot be read, as when it is gone."""
    try:
        return copy.read_bytes() == old_text.encode()
    except OSError:
        return True


def _offer_keyring(settings: Settings, key_parts: Sequence[str], value: Any) -> Any:
    """Return the value to set in the configuration: as it is, or a reference to the keyring, where it is stored.

    The reference is for a secret of a server, in its `env` or `headers`, if a person at the terminal agrees.
    """
    if (
        len(key_parts) != 4
        or key_parts[0] != "servers"
        or key_parts[2] not in ("env", "headers")
        or not isinstance(value, str)
    ):
        return value
    from hubbub_cli.machine.server_import import move_secrets_to_keyring  # imported late, as above

    return move_secrets_to_keyring(settings, key_parts[1], {key_parts[2]: {key_parts[3]: value}})[key_parts[2]][
        key_parts[3]
    ]


def _run_editor(copy: Path) -> None:
    """Run the person's editor on a file, and wait for its end. Raises TyperException."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        process = subprocess.run([*shlex.split(editor), str(copy)], check=False)  # noqa: S603 - the person's own editor
    except (OSError, ValueError) as exc:
        raise typer.TyperException(f"the editor {editor!r} cannot be started: {exc}; set EDITOR") from None
    if process.returncode:
        raise typer.TyperException(f"the editor ended with {process.returncode}; nothing is changed")


def _ask_to_edit_again() -> bool:
    """Ask whether to edit the file again, and return whether the person agrees."""
    note("Edit it again? (Enter: yes, or no) ", end="")
    return not sys.stdin.readline().strip().lower().startswith("n")
