"""`hubbub audit`."""

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from hubbub_cli.output.printer import print_json, print_records
from hubbub_cli.run.session import Settings
from hubbub_cli.syntax.group import Commands
from hubbub_cli.syntax.params import Limit

if TYPE_CHECKING:
    from hubbub_client.hub import Hub

app = Commands("Who changed what, and who was refused.")


def _convert_to_utc(since: datetime | None) -> datetime | None:
    """Return a time in UTC; None for None. A time without an offset is local. Raises BadParameter if out of range."""
    try:
        return None if since is None else since.astimezone(UTC)
    except (OverflowError, ValueError):
        raise typer.BadParameter("is out of range.") from None


Since = Annotated[
    datetime | None,
    typer.Option(
        metavar="TIME", help="Only entries from this local time on: 2026-01-31T18:00:00.", callback=_convert_to_utc
    ),
]


@app.hub_command("list", example="audit list --action AddServer")
async def list_(
    hub: "Hub",
    settings: Settings,
    principal: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this principal.")] = None,
    action: Annotated[str | None, typer.Option(metavar="RPC", help="Only of this action.")] = None,
    target: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only about this server, pending request, call, task or token.")
    ] = None,
    since: Since = None,
    limit: Limit = 100,
) -> None:
    """List entries of the audit log, newest first."""
    from hubbub_client.services.audit import AuditEntry

    entries = await hub.audit.list(principal=principal, action=action, target=target, since=since, limit=limit)
    print_records(AuditEntry, entries, settings.json)


@app.hub_command(example="audit export --since 2026-01-31T00:00:00")
async def export(hub: "Hub", settings: Settings, since: Since = None) -> None:
    """Print the whole audit log, newest first: one JSON object per line."""
    async with contextlib.aclosing(hub.audit.export(since=since)) as entries:
        async for entry in entries:
            print_json(entry.to_json())
