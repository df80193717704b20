"""`hubbub fleet`."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from hubbub_cli.output.printer import note, print_json, print_records, say
from hubbub_cli.output.progress_line import ProgressLine
from hubbub_cli.run.session import Settings, Usage, get_settings, run_with_hub
from hubbub_cli.syntax import completion
from hubbub_cli.syntax.bounds import check_seconds
from hubbub_cli.syntax.group import Commands
from hubbub_cli.syntax.params import Server
from hubbub_cli.syntax.usage import Failed

if TYPE_CHECKING:
    from hubbub_client.hub import Hub

app = Commands("A hub of several members: who takes part, and who has which server.")

POLL_S = 0.5
"""Seconds between two looks while something is waited for."""

MAX_CLOCK_OFFSET_S = 1.0
"""Seconds by which a member's clock may differ from the database's without a word."""

Member = Annotated[str, typer.Argument(metavar="MEMBER", help="The member.", autocompletion=completion.members)]
SomeMember = Annotated[
    str | None,
    typer.Argument(
        metavar="MEMBER", help="The member; else the one that you are connected to.", autocompletion=completion.members
    ),
]
Target = Annotated[
    str | None,
    typer.Argument(
        metavar="MEMBER", help="Who is to have it; else the hub chooses.", autocompletion=completion.members
    ),
]
WaitLimit = Annotated[
    float, typer.Option("--timeout", min=0, metavar="S", callback=check_seconds, help="Wait so long.")
]


@app.hub_command(example="fleet status")
async def status(hub: "Hub", settings: Settings) -> None:
    """Show the members, the servers that they have, and those that nobody has."""
    status = await hub.fleet.status()
    if settings.json:
        print_json(status.to_json())
        return
    from hubbub_client.services.fleet import FleetMember, UnownedServer

    print_records(FleetMember, status.members, as_json=False)
    if status.unowned:
        say("")
        print_records(UnownedServer, status.unowned, as_json=False)
    if status.required_schema < status.schema:
        older = [each.name for each in status.members if each.schema < status.schema and each.state != "gone"]
        finish = settings.command("fleet", "finish-upgrade")
        note(f"an upgrade is under way; to finish it: {finish}")
        if older:
            note(f"before that, the new version must be at {', '.join(older)}, too")
    ahead_s = status.clock_offset_ms / 1000
    if abs(ahead_s) > MAX_CLOCK_OFFSET_S:
        note(
            f"the clock of {status.member} differs from the database's by {abs(ahead_s):.1f} s; see that both are right"
        )


@app.hub_command(example="fleet move demo b")
async def move(
    hub: "Hub", settings: Settings, server: Server, member: Target = None, timeout: WaitLimit = 120.0
) -> None:
    """Hand a server on to another member, and wait until it is there; calls under way end first."""
    meter = ProgressLine(moving=not settings.json)
    meter.show(f"{server} is being handed on")
    try:
        moved = await hub.fleet.move(server, member)
        target, owner = moved.member, await _wait_for_owner(hub, server, moved.revision, timeout)
    finally:
        meter.hide()
    if settings.json:
        print_json({"server": server, "member": owner})
    elif owner is not None:
        say(f"{server} is at {owner}")
    if owner is None:
        note(f"nobody has {server} after {timeout:g} s; see: {settings.command('fleet', 'status')}")
    elif owner != target:
        note(f"it was meant for {target}, which did not take it")
    if owner is None or (member is not None and owner != member):
        raise Failed


async def _wait_for_owner(hub: "Hub", server: str, revision: int, timeout_s: float) -> str | None:
    """Return the member that has a server, as soon as one has it; None if none has it after `timeout_s`.

    What the fleet says of an earlier revision than `revision` does not count: it may be older than the move.
    """
    import asyncio

    give_up_at = time.monotonic() + timeout_s
    while True:
        status = await hub.fleet.status()
        owner = status.owner(server) if status.revision >= revision else None
        if owner is not None or time.monotonic() >= give_up_at:
            return owner
        await asyncio.sleep(POLL_S)


@app.hub_command(example="fleet drain b")
async def drain(
    hub: "Hub",
    settings: Settings,
    member: SomeMember = None,
    wait: Annotated[bool, typer.Option(help="Wait until it has nothing left.")] = True,
) -> bool:
    """Have a member hand all its servers on, and take none; before it is stopped for long, or upgraded.

    It drains on if you press Ctrl-C. After its next start, or `hubbub fleet resume`, it takes servers again.
    """
    name = await hub.fleet.drain(member)
    remaining_servers = await _wait_until_drained(hub, name, ProgressLine(moving=not settings.json)) if wait else 0
    status = await hub.fleet.status()
    record = status.find(name)
    if settings.json:
        print_json(record.to_json() if record else {"name": name})
    elif remaining_servers:
        say(f"{name} has {_format_server_count(remaining_servers)} left, and does not drain any more")
    else:
        say(f"{name} has no servers left" if wait else f"{name} drains")
    unowned = [each.server for each in status.unowned]
    if unowned:
        note(f"nobody has {', '.join(unowned)}; why: {settings.command('fleet', 'status')}")
    return remaining_servers == 0


async def _wait_until_drained(hub: "Hub", name: str, meter: ProgressLine) -> int:
    """Wait until a member that drains has no servers left, and return 0; show how many are left meanwhile.

    If the member does not drain any more, return how many servers it has.
    """
    import asyncio

    most, last_count = 0, -1
    try:
        while True:
            record = (await hub.fleet.status()).find(name)
            count = len(record.servers) if record else 0
            most = max(most, count)
            if record is None or not count or record.state != "draining":
                return count
            if count != last_count:
                meter.print_step(f"{name} has {_format_server_count(count)} left", most - count, most)
            last_count = count
            await asyncio.sleep(POLL_S)
    finally:
        meter.hide()


def _format_server_count(count: int) -> str:
    return f"{count} server{'' if count == 1 else 's'}"


@app.hub_command(example="fleet resume b")
async def resume(hub: "Hub", settings: Settings, member: SomeMember = None) -> None:
    """Have a member take servers again."""
    name = await hub.fleet.resume(member)
    await _print_member(hub, settings, name, f"{name} takes servers")


@app.command(example="fleet expel b --dead")
def expel(
    context: typer.Context,
    member: Member,
    dead: Annotated[bool, typer.Option("--dead", help="Its process has ended: do not wait for its lease.")] = False,
    force: Annotated[bool, typer.Option("--force", help="With --dead: even if it answers; it restarts.")] = False,
) -> None:
    """Declare a member gone, so that others take its servers; one that is overdue, or with --dead at once."""
    if force and not dead:
        raise Usage("--force goes with --dead")

    async def expel_member(hub: "Hub") -> None:
        """Declare the member gone, and print it."""
        name = await hub.fleet.expel(member, dead=dead, force=force)
        await _print_member(hub, get_settings(context), name, f"{name} is gone; others take its servers")

    run_with_hub(context, expel_member)


@app.hub_command("rotate-key", example="fleet rotate-key")
async def rotate_key(hub: "Hub", settings: Settings) -> bool:
    """Seal all secrets of servers with the first key of the vault; each member must have it before."""
    counts = await hub.fleet.rotate_key()
    if settings.json:
        print_json(counts.to_json())
    else:
        say(f"{counts.sealed} of {counts.rows} secrets are sealed with the first key")
    if counts.sealed < counts.rows:
        note("others wrote meanwhile with another key: see that all members have the same first key, and repeat it")
    return counts.sealed == counts.rows


@app.hub_command("finish-upgrade", example="fleet finish-upgrade")
async def finish_upgrade(hub: "Hub", settings: Settings) -> None:
    """Refuse hubs of older versions from now on, once all members are of the new one; there is no way back."""
    schema = await hub.fleet.finish_upgrade()
    if settings.json:
        print_json({"schema": schema})
    else:
        say(f"the upgrade is finished: hubs must know version {schema} of the store's schema from now on")


async def _print_member(hub: "Hub", settings: Settings, name: str, message: str) -> None:
    """Print the record of a member as JSON, or `message` for people."""
    if settings.json:
        member = (await hub.fleet.status()).find(name)
        print_json(member.to_json() if member else {"name": name})
    else:
        say(message)
