"""`hubbub store`."""

from typing import TYPE_CHECKING, Annotated

import typer

from hubbub_cli.output.details import print_record
from hubbub_cli.output.printer import print_counts, print_json, say
from hubbub_cli.output.progress_line import ProgressLine
from hubbub_cli.run.session import Settings, get_settings, run_in_loop
from hubbub_cli.syntax.group import Commands
from hubbub_cli.syntax.usage import Failed
from hubbub_client.data.records import StoreStatus
from hubbub_frontend.display.records import format_duration, format_size
from hubbub_frontend.shell_commands import with_hub_options

if TYPE_CHECKING:
    from hubbub_client.hub import Hub

app = Commands("The store: what the hub keeps on disk.")


@app.hub_command(example="store stats")
async def stats(hub: "Hub", settings: Settings) -> None:
    """Show the store in numbers."""
    status = await hub.store.stats()
    if settings.json:
        print_json(status.to_json())
    else:
        print_counts(_list_figures(status))


@app.hub_command(example="store compact")
async def compact(hub: "Hub", settings: Settings) -> None:
    """Delete now what is past its retention, and give the space back."""
    result = await hub.store.compact()
    if settings.json:
        print_json(result.to_json())
    elif result.before and result.after:
        say(f"{result.deleted} records deleted")
        rows = zip(_list_figures(result.before), _list_figures(result.after), strict=True)
        print_counts(
            (name, before if before == after else f"{before} -> {after}") for (name, before), (_, after) in rows
        )


@app.hub_command(name="trust-clock", example="store trust-clock")
async def trust_clock(hub: "Hub", settings: Settings) -> None:
    """Say that the hub's clock is right, after it went on far ahead of the last record.

    Until you say so, the hub counts that time as not passed, as the clock may be wrong, and deletes nothing for its
    age. Afterwards the next round of retention deletes what is too old, or `store compact` does so at once.
    """
    trusted_s = await hub.store.trust_clock()
    if settings.json:
        print_json({"trusted_ms": round(trusted_s * 1000)})
    elif trusted_s:
        say(
            with_hub_options(
                f"{format_duration(trusted_s)} count now; hubbub store compact deletes at once what is too old"
            )
        )
    else:
        say("the hub did not doubt its clock")


@app.hub_command(example="store backup hub-copy.db")
async def backup(
    hub: "Hub",
    settings: Settings,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file; readable by its owner only.")],
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
) -> None:
    """Write a backup of the store into a file here, while the hub goes on."""
    meter = ProgressLine(moving=not settings.json)
    last_percent = 0

    async def show_progress(copied_bytes: int, all_bytes: int) -> None:
        """Show how much is copied: in the moving line, and as a line every 10 %."""
        nonlocal last_percent
        if not all_bytes:
            meter.print_step("the hub makes the copy")
            return
        percent = 100 * copied_bytes // all_bytes
        text = f"{format_size(copied_bytes)} of {format_size(all_bytes)}, {percent} %"
        if percent >= last_percent + 10 or copied_bytes == all_bytes:
            last_percent = percent
            meter.print_step(text, copied_bytes, all_bytes)
        else:
            meter.show(text, copied_bytes, all_bytes)

    try:
        written = await hub.store.backup(file, replace=force, on_copied=show_progress)
    except OSError as exc:
        from hubbub_client.errors import FailedPrecondition

        raise FailedPrecondition(f"{exc.filename or file}: {exc.strerror}", reason="FILE_NOT_WRITTEN") from None
    finally:
        meter.hide()
    print_record(written, settings.json)


@app.command(example="store copy sqlite:hub/hubbub.db postgresql://hubbub@db.example/hubbub --verify")
def copy(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FROM", help="sqlite:PATH, or postgresql://USER@HOST/DATABASE.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Likewise; empty, or not there yet.")],
    secrets: Annotated[bool, typer.Option("--secrets", help="Take the secrets of servers along.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare both afterwards; a TO that has records is only compared.")
    ] = False,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="A configuration file of the hub, for its [store]; repeatable."),
    ] = None,
) -> None:
    """Copy a store that no hub has open to another place on this machine: file to database, or back.

    Records, revisions and deletions stay as they are; the copy is a new store for resume tokens. Without ?schema_name=
    and for passwords, what [store] says is used.
    """
    from hubbub_cli.machine.store_copy import CopyOrder, copy_store, print_copy_report

    settings = get_settings(context)
    order = CopyOrder(source=source, target=target, secrets=secrets, verify=verify, config=tuple(config or ()))
    report = run_in_loop(context, copy_store(order, settings.data_dir, ProgressLine(moving=not settings.json)))
    if settings.json:
        print_json(report)
    else:
        print_copy_report(report)
    if report["equal"] is False:
        raise Failed


def _list_figures(status: StoreStatus) -> list[tuple[str, str]]:
    """Return the figures of a store for people, each with its name."""
    return [
        ("id", status.id or "-"),
        ("revision", str(status.revision)),
        ("resumable from", str(status.compacted_revision)),
        ("records", str(status.keys)),
        ("deletions", str(status.deletions)),
        ("size", format_size(status.size_bytes)),
        ("free", format_size(status.free_bytes)),
    ]
