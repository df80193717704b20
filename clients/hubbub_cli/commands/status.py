"""`hubbub status`: one page about the hub."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from hubbub_cli.output.columns import describe_trouble
from hubbub_cli.output.printer import console, print_json
from hubbub_cli.run.session import Settings, get_settings, run_with_hub
from hubbub_client.data.records import Server, StateCount
from hubbub_frontend.display.records import (
    describe_address,
    describe_queue,
    format_duration,
    format_size,
    relative_time,
)
from hubbub_frontend.error_help import help_hint
from hubbub_shared.legible import clean

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

    from hubbub_client.hub import Hub
    from hubbub_client.services.admin import HubStatus

INTERVAL_S = 2.0

GOOD, POOR, BAD = "green", "yellow", "red"


def status(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every 2 s.")] = False,
) -> None:
    """Show one page about the hub: what it is, how its servers are, what waits, and what needs attention."""
    settings = get_settings(context)

    async def print_status(hub: "Hub") -> None:
        """Print the page, or the status as JSON: once, or every INTERVAL_S."""
        import asyncio

        if settings.json:
            while True:
                print_json((await hub.admin.status()).to_json())
                if not watch:
                    return
                await asyncio.sleep(INTERVAL_S)
        if watch:
            await _show_repeatedly(hub, settings)
        else:
            console().print(await _make_page(hub, settings))

    run_with_hub(context, print_status, endless=watch)


async def _show_repeatedly(hub: "Hub", settings: Settings) -> None:
    """Draw the page every INTERVAL_S in place, also while the hub is away, until cancelled."""
    import asyncio

    from rich.live import Live
    from rich.text import Text

    from hubbub_client.errors import Unavailable

    with Live(
        await _make_page(hub, settings), console=console(), auto_refresh=False, screen=console().is_terminal
    ) as live:
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                live.update(await _make_page(hub, settings), refresh=True)
            except Unavailable as error:
                live.update(Text(f"no hub: {error.message}"), refresh=True)


async def _make_page(hub: "Hub", settings: Settings) -> "Group":
    """Fetch the status and the servers of the hub, and return the page about them."""
    from rich.console import Group

    status, servers = await hub.admin.status(), await hub.servers.list()
    parts: list[RenderableType] = [_make_facts_table(status, describe_address(hub.address, hub.addresses))]
    if servers:
        parts += ["", _make_servers_table(servers)]
    troubles = [*_list_troubles(status, settings)]
    if troubles:
        parts += ["", *troubles]
    return Group(*parts)


def _make_facts_table(status: "HubStatus", where: str) -> "Table":
    """Return a table with a row for each fact about the hub at the address `where`."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value, style in _list_facts(status, where):
        table.add_row(name, Text(clean(value), style=style))
    return table


def _list_facts(status: "HubStatus", where: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the text and the colour of each fact about the hub; an empty colour is that of plain text."""
    serving = ("serving", GOOD) if status.serving else ("not serving", BAD)
    yield (
        "hub",
        f"{serving[0]} at {where}, started {relative_time(status.started_at)}, process {status.pid}",
        serving[1],
    )
    if versions := status.versions:
        yield (
            "versions",
            f"hubbubd {status.version}, Python {versions.python}, MCP SDK {versions.mcp}, gRPC {versions.grpc}",
            "",
        )
        yield "MCP", ", ".join(versions.revisions), ""
    yield "servers", _describe_counts(status.servers), ""
    yield "calls", _describe_counts(status.calls), ""
    oldest = f"; the oldest came {relative_time(status.oldest_open_at)}" if status.oldest_open_at else ""
    yield "inbox", f"open: {_describe_counts(status.open_requests)}{oldest}", POOR if status.open_requests else ""
    yield "requests", _describe_counts(status.requests), ""
    yield "tasks", _describe_counts(status.tasks), ""
    yield "watchers", str(status.watchers), ""
    if status.store:
        written = f"last written {relative_time(status.last_commit_at)}" if status.last_commit_at else "not written yet"
        yield "store", f"{status.store.keys} records, {format_size(status.store.size_bytes)}, {written}", ""
    if status.config:
        watched = "watched" if status.config.watched else "not watched"
        files = ", ".join(status.config.files)
        yield "config", f"{files or 'no files'}, taken over {relative_time(status.config.loaded_at)}, {watched}", ""
    if status.telemetry:
        yield "telemetry", f"on, to {status.telemetry.endpoint}" if status.telemetry.on else "off", ""


def _make_servers_table(servers: Sequence[Server]) -> "Table":
    """Return a table with a row for each server; below a server with a fault, a row says where to read more."""
    from rich.table import Table
    from rich.text import Text

    from hubbub_frontend.display.text import STYLES

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("server", "state", "protocol", "queue", "what is wrong"):
        table.add_column(name, no_wrap=name == "server", overflow="fold")
    for each in servers:
        wrong = describe_trouble(each)
        if each.error and each.next_retry_at and each.next_retry_at > datetime.now(UTC):
            wrong += f"; again {relative_time(each.next_retry_at)}"
        state = Text(each.state, style=STYLES.get(each.state, ""))
        table.add_row(
            Text(clean(each.name)),
            state,
            Text(clean(each.protocol_version or "-")),
            describe_queue(each.queue) or "-",
            Text(clean(wrong)),
        )
        if each.error and (more := help_hint(each.error.code, each.error.help_url)):
            table.add_row("", "", "", "", Text(f"more: {clean(more)}", style="dim"))
    return table


def _list_troubles(status: "HubStatus", settings: Settings) -> "Iterator[RenderableType]":
    """Yield a line for each thing that needs a person: store, clock, configuration, then open requests."""
    from rich.text import Text

    if status.store_problem:
        yield Text(f"The store cannot be written: {status.store_problem}", style=BAD)
    if status.doubted_ms:
        ahead = format_duration(status.doubted_ms / 1000)
        yield Text(
            f"The clock is {ahead} ahead of the last recorded time. Until this is confirmed, it deletes nothing. "
            f"If the hub did not run for so long: {settings.command('store', 'trust-clock')}",
            style=POOR,
        )
    if status.config and status.config.problem:
        yield Text(f"The configuration is not taken over: {status.config.problem}", style=BAD)
    if status.config and status.config.needs_restart:
        yield Text(f"These hold after a restart of the hub: {', '.join(status.config.needs_restart)}", style=POOR)
    if status.open_requests:
        yield Text(f"Somebody is waited for: {settings.command('inbox', 'answer')}", style=POOR)


def _describe_counts(counts: tuple[StateCount, ...]) -> str:
    return ", ".join(f"{each.count} {each.state}" for each in counts if each.count) or "none"
