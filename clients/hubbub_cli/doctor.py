"""`hubbub doctor`: what needs attention, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hubbub_cli.output import coloured, print_json, say, trouble
from hubbub_cli.session import Settings, settings_of
from hubbub_client.records import CatalogList, PendingRequest, Server
from hubbub_frontend.wording import relative, why

if TYPE_CHECKING:
    from hubbub_client.admin import Finding, HubStatus, Verdict
    from hubbub_client.errors import HubbubError
    from hubbub_client.hub import Hub

# A pending request that expires this soon is worth a warning, seconds.
SOON = timedelta(minutes=1)

# A larger difference between two clocks makes deadlines and times misleading, seconds.
SKEW = timedelta(seconds=5)

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(context: typer.Context) -> None:
    """Check the hub, its surroundings and its servers, and say what to do; exit 1 when something has failed."""
    import asyncio

    settings = settings_of(context)
    failed = False
    for each in asyncio.run(_look(settings)):
        failed |= each.verdict == "fail"
        if settings.json:
            print_json(each.to_json())
            continue
        verdict = each.verdict if each.verdict in COLOURS else "warn"  # a newer hub may have others
        say(coloured(f"{verdict:4}", COLOURS[verdict]), f"{each.about}: {each.message or ''}")
        if each.advice:
            say(f"      {each.advice}")
    if failed:
        raise typer.Exit(1)


async def _look(settings: Settings) -> list[Finding]:
    from hubbub_client.errors import HubbubError  # imported late here and below, since it imports gRPC

    try:
        async with settings.connect(patient=False) as hub:
            return _agreeing([each async for each in _of_a_hub(hub, settings)])
    except HubbubError as error:
        return [_refused(error), *_without_a_hub(settings)]


async def _of_a_hub(hub: Hub, settings: Settings) -> AsyncIterator[Finding]:
    from hubbub_client.errors import PermissionDenied, Unimplemented

    status = await hub.admin.status()
    for each in _hub(hub, status):
        yield each
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


def _agreeing(findings: Sequence[Finding]) -> list[Finding]:
    """Drop each `ok` about something that another finding warns of: it would only reassure wrongly."""
    ill = {each.about for each in findings if each.verdict != "ok"}
    return [each for each in findings if each.verdict != "ok" or each.about not in ill]


def _finding(about: str, verdict: Verdict, message: str, advice: str | None = None) -> Finding:
    from hubbub_client.admin import Finding

    return Finding(about=about, verdict=verdict, message=message, advice=advice)


def _refused(error: HubbubError) -> Finding:
    advice = "start hubbubd; `hubbubd --check-config` with its options says whether it would start"
    if error.reason != "HUB_UNREACHABLE":
        advice = f"see {error.help_url}" if error.help_url else "check --address, --token and --ca"
    return _finding("hub", "fail", f"{error.message} ({error.reason})", advice)


def _without_a_hub(settings: Settings) -> Iterator[Finding]:
    """Check this machine alone, if no hub answers and the hub would run here."""
    if settings.address or os.environ.get("HUBBUB_ADDRESS"):
        yield _finding("this machine", "warn", "the hub is elsewhere: nothing else can be looked at from here")
        return
    from hubbub_client.discovery import default_data_dir

    directory = Path(settings.data_dir or os.environ.get("HUBBUB_DATA_DIR") or default_data_dir())
    try:
        yield from _data_directory(directory)
    except OSError as error:  # not a name that the system takes, or on the way to it something may not be read
        yield _finding(f"data directory {directory}", "warn", f"it cannot be looked at: {error.strerror}")


def _data_directory(directory: Path) -> Iterator[Finding]:
    """Check who may read what is in it. Raises OSError if the system does not tell."""
    about = f"data directory {directory}"
    if not directory.is_dir():
        yield _finding(about, "warn", "it is not there: no hub has run with it", "name another one: --data-dir")
        return
    if directory.stat().st_uid != os.geteuid():
        yield _finding(about, "warn", "it belongs to another user", "run this as that user")
        return
    yield _finding(about, "ok", "it is there")
    file = directory / "client.json"
    if not file.is_file():
        yield _finding(str(file), "warn", "it is not there", "a hub writes it when it starts")
    elif file.stat().st_mode & 0o077:
        yield _finding(str(file), "warn", "others may read the token in it", f"chmod go= {file}")
    else:
        yield _finding(str(file), "ok", "only its owner can read it")


def _hub(hub: Hub, status: HubStatus) -> Iterator[Finding]:
    started = f"{status.version} at {hub.address}, started {relative(status.started_at)}"
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
    for server in servers:
        about = f"server {server.name}"
        fault = server.error
        # A server that fails again and again is `connecting` in between.
        if server.state == server.desired_state or (server.state == "connecting" and not fault):
            yield _finding(about, "ok", server.state)
            continue
        message = f"{server.state}: {trouble(server)}" if fault else server.state
        yield _finding(about, "fail", message, fault.help_url if fault else None)


def _lists(lists: Sequence[CatalogList], settings: Settings) -> Iterator[Finding]:
    for each in lists:
        if each.freshness == "error" and each.error:
            message = why(each.error)
            advice = settings.command("catalog", "refresh", each.server)
            yield _finding(f"{each.kind}s of {each.server}", "fail", message, advice)


def _inbox(requests: Sequence[PendingRequest], command: str) -> Iterator[Finding]:
    soon = datetime.now(UTC) + SOON
    late = [each for each in requests if each.deadline and each.deadline < soon]
    message = f"{len(requests)} open, {len(late)} of them end within a minute"
    yield _finding("inbox", "fail" if late else "ok", message, f"{command} {late[0].id}" if late else None)
