"""`hubbub status`: one page about the hub."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from hubbub_cli.output.columns import describe_trouble
from hubbub_cli.output.printer import console, print_json
from hubbub_cli.run.session import Settings, run_with_hub, settings_of
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
    settings = settings_of(context)

    async def work(hub: "Hub") -> None:
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

    run_with_hub(context, work, endless=watch)


async def _show_repeatedly(hub: "Hub", settings: Settings) -> None:
    """Show the page again and again in place, also while the hub is away."""
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
    from rich.console import Group

    it, servers = await hub.admin.status(), await hub.servers.list()
    parts: list[RenderableType] = [_make_facts_table(it, describe_address(hub.address, hub.addresses))]
    if servers:
        parts += ["", _make_servers_table(servers)]
    troubles = [*_list_troubles(it, settings)]
    if troubles:
        parts += ["", *troubles]
    return Group(*parts)


def _make_facts_table(it: "HubStatus", where: str) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value, style in _list_facts(it, where):
        table.add_row(name, Text(clean(value), style=style))
    return table


def _list_facts(it: "HubStatus", where: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the text and the colour of each fact about the hub."""
    serving = ("serving", GOOD) if it.serving else ("not serving", BAD)
    yield "hub", f"{serving[0]} at {where}, started {relative_time(it.started_at)}, process {it.pid}", serving[1]
    if made := it.versions:
        yield "versions", f"hubbubd {it.version}, Python {made.python}, MCP SDK {made.mcp}, gRPC {made.grpc}", ""
        yield "MCP", ", ".join(made.revisions), ""
    yield "servers", _describe_counts(it.servers), ""
    yield "calls", _describe_counts(it.calls), ""
    oldest = f"; the oldest came {relative_time(it.oldest_open_at)}" if it.oldest_open_at else ""
    yield "inbox", f"open: {_describe_counts(it.open_requests)}{oldest}", POOR if it.open_requests else ""
    yield "requests", _describe_counts(it.requests), ""
    yield "tasks", _describe_counts(it.tasks), ""
    yield "watchers", str(it.watchers), ""
    if it.store:
        written = f"last written {relative_time(it.last_commit_at)}" if it.last_commit_at else "not written yet"
        yield "store", f"{it.store.keys} records, {format_size(it.store.size_bytes)}, {written}", ""
    if it.config:
        watched = "watched" if it.config.watched else "not watched"
        files = ", ".join(it.config.files)
        yield "config", f"{files or 'no files'}, taken over {relative_time(it.config.loaded_at)}, {watched}", ""
    if it.telemetry:
        yield "telemetry", f"on, to {it.telemetry.endpoint}" if it.telemetry.on else "off", ""


def _make_servers_table(servers: Sequence[Server]) -> "Table":
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


def _list_troubles(it: "HubStatus", settings: Settings) -> "Iterator[RenderableType]":
    """Yield what needs a person, the store's trouble first."""
    from rich.text import Text

    if it.store_problem:
        yield Text(f"The store cannot be written: {it.store_problem}", style=BAD)
    if it.doubted_ms:
        ahead = format_duration(it.doubted_ms / 1000)
        yield Text(
            f"The clock is {ahead} ahead of what was recorded last. Nobody confirms it, so it "
            f"ages nothing. If the hub did not run for so long: {settings.command('store', 'trust-clock')}",
            style=POOR,
        )
    if it.config and it.config.problem:
        yield Text(f"The configuration is not taken over: {it.config.problem}", style=BAD)
    if it.config and it.config.needs_restart:
        yield Text(f"These hold after a restart of the hub: {', '.join(it.config.needs_restart)}", style=POOR)
    if it.open_requests:
        yield Text(f"Somebody is waited for: {settings.command('inbox', 'answer')}", style=POOR)


def _describe_counts(counts: tuple[StateCount, ...]) -> str:
    return ", ".join(f"{each.count} {each.state}" for each in counts if each.count) or "none"
