"""`hubbub store`."""

from typing import TYPE_CHECKING, Annotated

import typer

from hubbub_cli.output.details import print_record
from hubbub_cli.output.printer import print_counts, print_json, say
from hubbub_cli.output.progress_line import ProgressLine
from hubbub_cli.run.session import in_loop, run, settings_of
from hubbub_cli.syntax.group import Commands
from hubbub_cli.syntax.params import example
from hubbub_cli.syntax.usage import Failed
from hubbub_client.data.records import StoreStatus
from hubbub_frontend.display.records import format_duration, format_size
from hubbub_frontend.shell_commands import with_hub_options

if TYPE_CHECKING:
    from hubbub_client.hub import Hub

app = Commands("The store: what the hub keeps on disk.")


@app.command(epilog=example("store stats"))
def stats(context: typer.Context) -> None:
    """Show the store in numbers."""

    async def work(hub: "Hub") -> None:
        it = await hub.store.stats()
        if settings_of(context).json:
            print_json(it.to_json())
        else:
            print_counts(_rows(it))

    run(context, work)


@app.command(epilog=example("store compact"))
def compact(context: typer.Context) -> None:
    """Delete now what is past its retention, and give the space back."""

    async def work(hub: "Hub") -> None:
        it = await hub.store.compact()
        if settings_of(context).json:
            print_json(it.to_json())
        elif it.before and it.after:
            say(f"{it.deleted} records deleted")
            rows = zip(_rows(it.before), _rows(it.after), strict=True)
            print_counts(
                (name, before if before == after else f"{before} -> {after}") for (name, before), (_, after) in rows
            )

    run(context, work)


@app.command(name="trust-clock", epilog=example("store trust-clock"))
def trust_clock(context: typer.Context) -> None:
    """Say that the hub's clock is right: the time by which it is ahead of what was recorded last has passed.

    Until then that time ages nothing, as the clock may be wrong. What is too old by it goes with the next round of
    retention, or now with `store compact`.
    """

    async def work(hub: "Hub") -> None:
        trusted_s = await hub.store.trust_clock()
        if settings_of(context).json:
            print_json({"trusted_ms": round(trusted_s * 1000)})
        elif trusted_s:
            say(
                with_hub_options(
                    f"{format_duration(trusted_s)} count now; hubbub store compact deletes at once what is too old"
                )
            )
        else:
            say("nothing was doubted")

    run(context, work)


@app.command(epilog=example("store backup hub-copy.db"))
def backup(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file; readable by its owner only.")],
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
) -> None:
    """Write a backup of the store into a file here, while the hub goes on."""
    settings = settings_of(context)
    meter = ProgressLine(moving=not settings.json)
    told = 0

    async def show(here: int, whole: int) -> None:
        nonlocal told
        percent = 100 * here // whole if whole else 0
        words = f"{format_size(here)} of {format_size(whole)}, {percent} %" if whole else "the hub makes the copy"
        if not whole or percent >= told + 10 or here == whole:
            told = percent
            meter.tell(words, here, whole or None)
        else:
            meter.show(words, here, whole)

    async def work(hub: "Hub") -> None:
        try:
            written = await hub.store.backup(file, replace=force, on_copied=show)
        except OSError as exc:
            from hubbub_client.errors import FailedPrecondition

            raise FailedPrecondition(f"{exc.filename or file}: {exc.strerror}", reason="FILE_NOT_WRITTEN") from None
        finally:
            meter.hide()
        print_record(written, settings.json)

    run(context, work)


@app.command(epilog=example("store copy sqlite:hub/hubbub.db postgresql://hubbub@db.example/hubbub --verify"))
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
    from hubbub_cli.machine.store_copy import CopyOrder, copied, print_copied

    settings = settings_of(context)
    order = CopyOrder(source=source, target=target, secrets=secrets, verify=verify, config=tuple(config or ()))
    done = in_loop(context, copied(order, settings.data_dir, ProgressLine(moving=not settings.json)))
    if settings.json:
        print_json(done)
    else:
        print_copied(done)
    if done["equal"] is False:
        raise Failed


def _rows(it: StoreStatus) -> list[tuple[str, str]]:
    return [
        ("id", it.id or "-"),
        ("revision", str(it.revision)),
        ("resumable from", str(it.compacted_revision)),
        ("records", str(it.keys)),
        ("deletions", str(it.deletions)),
        ("size", format_size(it.size_bytes)),
        ("free", format_size(it.free_bytes)),
    ]
