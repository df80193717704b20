"""`hubbub doctor`: what needs attention, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubbub_cli.output.printer import ADD_A_SERVER, coloured, note, print_json, say, trouble
from hubbub_cli.run.session import Settings, Usage, in_loop, settings_of
from hubbub_client.data.records import CatalogList, PendingRequest, Server
from hubbub_client.payload import as_object
from hubbub_frontend.display.records import describe_address, describe_fault, relative_time
from hubbub_frontend.error_help import help_hint
from hubbub_frontend.shell_commands import with_hub_options

if TYPE_CHECKING:
    from hubbub_cli.machine.checks import Checked, Repair
    from hubbub_client.errors import HubbubError
    from hubbub_client.hub import Hub
    from hubbub_client.services.admin import Finding, HubStatus, Verdict

# A pending request that expires this soon is worth a warning, seconds.
SOON = timedelta(minutes=1)

# A larger difference between two clocks makes deadlines and times misleading, seconds.
SKEW = timedelta(seconds=5)

# What helps against the faults of a server, by their codes.
ADVICE = {
    "AUTHENTICATION_FAILED": "open its page in the inbox, or correct its token: hubbub inbox list --state open",
    "COMMAND_NOT_EXECUTABLE": "make it executable: chmod +x",
    "COMMAND_NOT_FOUND": "install it, or write its whole path: the hub looks in the PATH that it was started with",
    "COMMAND_NOT_ALLOWED": "add the command to allow_commands in [hub] of the hub's configuration",
    "CONNECTION_REFUSED": "start it, or correct the port in its url",
    "HOST_NOT_ALLOWED": "add the host to allow_hosts in [hub] of the hub's configuration",
    "HOST_NOT_FOUND": "correct the host in its url",
    "VARIABLE_NOT_ALLOWED": "add the variable to allow_variables in [hub] of the hub's configuration",
    "VARIABLE_NOT_SET": "set the variable where the hub is started, or write ${NAME:-default}",
    "WORKING_DIRECTORY_INVALID": "make the directory, or correct cwd",
}

# What brings the commands that most servers are started with.
INSTALL = {
    "bunx": "install Bun, which brings bunx; then restart the hub",
    "docker": "install Docker, or Podman and a link to it; then restart the hub",
    "node": "install Node.js; then restart the hub",
    "npx": "install Node.js, which brings npx; then restart the hub, so that its PATH has it",
    "uv": "install uv: pipx install uv; then restart the hub, so that its PATH has it",
    "uvx": "install uv, which brings uvx: pipx install uv; then restart the hub, so that its PATH has it",
}

IN_TOOLS = frozenset({"node", "npx", "npm", "uv", "uvx"})
"""Commands that the target `tools` of the image has: in a container nothing can be installed where it runs."""

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
ORDER = ("ok", "warn", "fail")
"""In which order a person sees the findings: what is wrong comes last, where it is seen."""


def doctor(
    context: typer.Context,
    fix: Annotated[bool, typer.Option("--fix", help="Repair what is safe to repair, each after asking.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --fix: do not ask.")] = False,
) -> None:
    """Check the hub, its surroundings and its servers, and say what to do; exit 1 when something has failed."""
    settings = settings_of(context)
    if yes and not fix:
        raise Usage("--yes is for --fix")
    if fix and not (yes or settings.interactive):
        raise Usage("repairs are made only with consent: at a terminal, or with --yes")
    failed = False
    found = in_loop(context, _look(settings))
    for each in found if settings.json else sorted(found, key=_place):
        _show(each.finding, settings.json)
        mended = fix and each.repair is not None and _mended(each.repair, settings.json, ask=not yes)
        failed |= each.finding.verdict == "fail" and not mended
    if failed:
        raise typer.Exit(1)


def _place(each: Checked) -> int:
    return ORDER.index(_verdict(each.finding))


def _verdict(finding: Finding) -> str:
    return finding.verdict if finding.verdict in ORDER else "warn"  # a newer hub may have others


def _show(finding: Finding, as_json: bool) -> None:
    if as_json:
        print_json(finding.to_json())
        return
    verdict = _verdict(finding)
    say(coloured(f"{verdict:4}", COLOURS[verdict]), f"{finding.about}: {finding.message or ''}")
    for line in with_hub_options(finding.advice or "").splitlines():
        say(f"      {line}")


def _mended(repair: Repair, as_json: bool, *, ask: bool) -> bool:
    """Repair something, if the person agrees; return whether it was done."""
    if ask and not typer.confirm(f"      do this now? {repair.what}", err=True):
        return False
    try:
        repair.do()
    except OSError as error:
        note(f"      that failed: {error.strerror}")
        return False
    if as_json:
        print_json({"repair": repair.what, "done": True})
    else:
        say(f"      done: {repair.what}")
    return True


async def _look(settings: Settings) -> list[Checked]:
    from hubbub_cli.machine.checks import Checked, data_directory, without_hub  # imported late, with asyncio and gRPC
    from hubbub_client.errors import HubbubError

    here = _directory(settings)
    found = list(data_directory(here)) if here else []
    try:
        async with settings.connect(patient=False) as hub:
            seen = [Checked(finding=each) async for each in _of_a_hub(hub, settings)]
            ill = [each for each in found if each.finding.verdict != "ok"]
            return _agreeing([*seen, *(each for each in ill if each.repair)])
    except HubbubError as error:
        refused = error
    seen = [Checked(finding=_refused(refused, settings, elsewhere=here is None)), *found]
    if here is None:
        message = "the hub is elsewhere: nothing else can be looked at from here"
        seen.append(Checked(finding=_finding("this machine", "warn", message)))
    elif refused.reason == "HUB_UNREACHABLE":
        seen += [each async for each in without_hub(here)]
    return _once(seen)


def _directory(settings: Settings) -> Path | None:
    """Return the data directory, if the hub is one of this machine."""
    if settings.address or os.environ.get("HUBBUB_ADDRESS"):
        return None
    from hubbub_client.transport.discovery import default_data_dir

    return Path(settings.data_dir or os.environ.get("HUBBUB_DATA_DIR") or default_data_dir())


def _once(found: Sequence[Checked]) -> list[Checked]:
    """Keep the first finding about each thing."""
    return list({each.finding.about: each for each in reversed(found)}.values())[::-1]


async def _of_a_hub(hub: Hub, settings: Settings) -> AsyncIterator[Finding]:
    from hubbub_client.errors import PermissionDenied, Unimplemented

    status = await hub.admin.status()
    for each in _hub(hub, status):
        yield each
    for address in hub.addresses if len(hub.addresses) > 1 else ():
        if address != hub.address:
            yield await _of_an_address(replace(settings, address=address), status)
    try:
        for each in await hub.admin.check():
            yield each
    except (PermissionDenied, Unimplemented) as error:
        yield _finding("hub's own checks", "warn", error.message, "ask an admin to run this")
    _, lists = await hub.catalog.read()
    for each in (
        *_servers(await hub.servers.list()),
        *_lists(lists, settings),
        *_inbox(await hub.inbox.list(states=["open"]), settings.command("inbox", "answer")),
    ):
        yield each


async def _of_an_address(settings: Settings, status: HubStatus) -> Finding:
    """Look at another address of the same hub."""
    from hubbub_client.errors import HubbubError

    about = f"address {settings.address}"
    try:
        async with settings.connect(patient=False) as hub:
            other = await hub.admin.status()
    except HubbubError as error:
        return _finding(about, "warn", f"{error.message} ({error.reason})", "start it, or leave the address out")
    if status.store and other.store and status.store.id != other.store.id:
        advice = "name only addresses of one hub: members of one fleet"
        return _finding(about, "fail", "it is of another hub, with records of its own", advice)
    return _finding(about, "ok", f"{other.version}, started {relative_time(other.started_at)}")


def _agreeing(found: Sequence[Checked]) -> list[Checked]:
    """Drop each `ok` about something that another finding warns of: it would only reassure wrongly."""
    ill = {each.finding.about for each in found if each.finding.verdict != "ok"}
    return [each for each in found if each.finding.verdict != "ok" or each.finding.about not in ill]


def _finding(about: str, verdict: Verdict, message: str, advice: str | None = None) -> Finding:
    from hubbub_client.services.admin import Finding

    return Finding(about=about, verdict=verdict, message=message, advice=advice)


def _refused(error: HubbubError, settings: Settings, *, elsewhere: bool) -> Finding:
    if error.reason != "HUB_UNREACHABLE":
        advice = help_hint(error.reason, error.help_url) or "check --address, --token and --ca"
    elif elsewhere:
        advice = "check the address; without --address and HUBBUB_ADDRESS, the hub of this machine is asked"
    else:
        start = settings.command("up", "-d")
        advice = f"start one: {start}; `hubbubd --check-config` with its options says whether it would start"
    return _finding("hub", "fail", f"{error.message} ({error.reason})", advice)


def _hub(hub: Hub, status: HubStatus) -> Iterator[Finding]:
    address = describe_address(hub.address, hub.addresses)
    started = f"{status.version} at {address}, started {relative_time(status.started_at)}"
    if status.serving:
        yield _finding("hub", "ok", started)
    else:
        yield _finding("hub", "fail", f"{started}; it takes no new work", "what is wrong with its store stands below")
    own = version("hubbub")
    if status.version == own:
        yield _finding("versions", "ok", f"hub and client are {own}")
    else:
        message = f"the hub is {status.version}, this client {own}"
        yield _finding("versions", "warn", message, "use the same, or restart a hub that was upgraded")
    if status.now is not None:
        off = datetime.now(UTC) - status.now
        advice = "set the clocks of both machines by NTP"
        if abs(off) < SKEW:
            yield _finding("clock of this machine", "ok", "it agrees with the hub's")
        else:
            message = f"{abs(off).total_seconds():.0f} s {'ahead of' if off > timedelta() else 'behind'} the hub's"
            yield _finding("clock of this machine", "warn", message, advice)


def _servers(servers: Sequence[Server]) -> Iterator[Finding]:
    if not servers:
        yield _finding("servers", "warn", "the hub has none yet", ADD_A_SERVER)
    for server in servers:
        about = f"server {server.name}"
        fault = server.error
        # A server that fails again and again is `connecting` in between.
        as_wanted = server.state == server.desired_state or (server.state == "connecting" and not fault)
        if as_wanted and not server.gave_up:
            yield _finding(about, "ok", server.state)
            continue
        message = f"{server.state}: {trouble(server)}" if fault else server.state
        yield _finding(about, "fail", message, _advice(server))


def _advice(server: Server) -> str | None:
    """Return what to do about a server that is away."""
    fault = server.error
    if fault is None:
        return f"hubbub servers connect {server.name}"
    said = [ADVICE.get(fault.code, "")]
    if fault.code == "COMMAND_NOT_FOUND":
        command = Path(str(as_object(fault.details).get("command", ""))).name
        said = [_installing(command) or said[0]]
    if server.gave_up:
        said.append(f"{'then: ' if said[0] else ''}hubbub servers connect {server.name}")
    if more := help_hint(fault.code, fault.help_url):
        said.append(f"more: {more}")
    return "\n".join(filter(None, said)) or None


def _installing(command: str) -> str | None:
    """Return how a command comes to the hub's machine; None for one that this does not know."""
    if command in IN_TOOLS and os.statvfs("/").f_flag & os.ST_RDONLY:
        return f"use the image with {command}: HUBBUB_TARGET=tools docker compose up --build -d, or --target tools"
    return INSTALL.get(command)


def _lists(lists: Sequence[CatalogList], settings: Settings) -> Iterator[Finding]:
    for each in lists:
        if each.freshness == "error" and each.error:
            message = describe_fault(each.error)
            advice = settings.command("catalog", "refresh", each.server)
            yield _finding(f"{each.kind}s of {each.server}", "fail", message, advice)


def _inbox(requests: Sequence[PendingRequest], command: str) -> Iterator[Finding]:
    soon = datetime.now(UTC) + SOON
    late = [each for each in requests if each.deadline and each.deadline < soon]
    message = f"{len(requests)} open, {len(late)} of them end within a minute"
    yield _finding("inbox", "fail" if late else "ok", message, f"{command} {late[0].id}" if late else None)
