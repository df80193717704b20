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

from hubbub_cli.output.columns import describe_trouble
from hubbub_cli.output.printer import ADD_A_SERVER, colour_text, note, print_json, say
from hubbub_cli.run.session import Settings, Usage, get_settings, run_in_loop
from hubbub_client.data.catalog import CatalogList
from hubbub_client.data.records import PendingRequest, Server
from hubbub_client.payload import as_object
from hubbub_frontend.display.records import describe_address, describe_fault, relative_time
from hubbub_frontend.error_help import help_hint
from hubbub_frontend.shell_commands import with_hub_options
from hubbub_shared.platform import files

if TYPE_CHECKING:
    from hubbub_cli.machine.checks import CheckResult, Repair
    from hubbub_client.errors import HubbubError
    from hubbub_client.hub import Hub
    from hubbub_client.services.admin import Finding, HubStatus, Verdict

# A pending request that expires this soon is worth a warning.
EXPIRES_SOON = timedelta(minutes=1)

# A larger difference between two clocks makes deadlines and times misleading.
MAX_CLOCK_SKEW = timedelta(seconds=5)

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

IMAGE_COMMANDS = frozenset({"node", "npx", "npm", "uv", "uvx"})
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
    settings = get_settings(context)
    if yes and not fix:
        raise Usage("--yes is for --fix")
    if fix and not (yes or settings.interactive):
        raise Usage("repairs are made only with consent: at a terminal, or with --yes")
    failed = False
    checks = run_in_loop(context, _run_checks(settings))
    for each in checks if settings.json else sorted(checks, key=_rank_verdict):
        _print_finding(each.finding, settings.json)
        is_repaired = fix and each.repair is not None and _repair(each.repair, settings.json, ask=not yes)
        failed |= each.finding.verdict == "fail" and not is_repaired
    if failed:
        raise typer.Exit(1)


def _rank_verdict(result: CheckResult) -> int:
    """Return the position of a result in the order for people, in which what is wrong comes last."""
    return ORDER.index(_normalize_verdict(result.finding))


def _normalize_verdict(finding: Finding) -> str:
    """Return the verdict of a finding; `warn` for one that only a newer hub knows."""
    return finding.verdict if finding.verdict in ORDER else "warn"  # a newer hub may have others


def _print_finding(finding: Finding, as_json: bool) -> None:
    """Print a finding: as JSON, or as its verdict and message, with advice in lines below."""
    if as_json:
        print_json(finding.to_json())
        return
    verdict = _normalize_verdict(finding)
    say(colour_text(f"{verdict:4}", COLOURS[verdict]), f"{finding.about}: {finding.message or ''}")
    for line in with_hub_options(finding.advice or "").splitlines():
        say(f"      {line}")


def _repair(repair: Repair, as_json: bool, *, ask: bool) -> bool:
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


async def _run_checks(settings: Settings) -> list[CheckResult]:
    """Return the findings about the hub, or why the hub does not answer, and those about this machine.

    If the hub answers, the findings about this machine are left out, except those that can be repaired here.
    """
    from hubbub_cli.machine.checks import (  # imported late, with asyncio and gRPC
        CheckResult,
        check_data_directory,
        check_orphaned_processes,
        check_without_hub,
    )
    from hubbub_client.errors import HubbubError

    data_dir = _find_data_dir(settings)
    local_checks = [*check_data_directory(data_dir), *check_orphaned_processes()] if data_dir else []
    try:
        async with settings.connect(patient=False) as hub:
            checks = [CheckResult(finding=each) async for each in _check_hub(hub, settings)]
            problems = [each for each in local_checks if each.finding.verdict != "ok"]
            return _drop_contradicted([*checks, *(each for each in problems if each.repair)])
    except HubbubError as error:
        refusal = error
    checks = [CheckResult(finding=_explain_refusal(refusal, settings, elsewhere=data_dir is None)), *local_checks]
    if data_dir is None:
        message = "the hub is elsewhere: nothing else can be looked at from here"
        checks.append(CheckResult(finding=_make_finding("this machine", "warn", message)))
    elif refusal.reason == "HUB_UNREACHABLE":
        checks += [each async for each in check_without_hub(data_dir)]
    return _keep_first_findings(checks)


def _find_data_dir(settings: Settings) -> Path | None:
    """Return the data directory of this machine's hub; None if an address names the hub."""
    if settings.address or os.environ.get("HUBBUB_ADDRESS"):
        return None
    from hubbub_local.platform_dirs import find_data_dir  # imported late, as what asks the hub

    return find_data_dir(settings.data_dir)


def _keep_first_findings(results: Sequence[CheckResult]) -> list[CheckResult]:
    """Return the findings without those about a subject that an earlier finding is about."""
    first_by_subject: dict[str, CheckResult] = {}
    for each in results:
        first_by_subject.setdefault(each.finding.about, each)
    return list(first_by_subject.values())


async def _check_hub(hub: Hub, settings: Settings) -> AsyncIterator[Finding]:
    """Yield the findings about a hub that answers: its addresses, its own checks, servers, lists and inbox."""
    from hubbub_client.errors import PermissionDenied, Unimplemented

    status = await hub.admin.status()
    for each in _check_status(hub, status):
        yield each
    for address in hub.addresses if len(hub.addresses) > 1 else ():
        if address != hub.address:
            yield await _check_address(replace(settings, address=address), status)
    try:
        for each in await hub.admin.check():
            yield each
    except (PermissionDenied, Unimplemented) as error:
        yield _make_finding("hub's own checks", "warn", error.message, "ask an admin to run this")
    _, lists = await hub.catalog.read()
    for each in (
        *_check_servers(await hub.servers.list()),
        *_check_lists(lists, settings),
        *_check_inbox(await hub.inbox.list(states=["open"]), settings.command("inbox", "answer")),
    ):
        yield each


async def _check_address(settings: Settings, status: HubStatus) -> Finding:
    """Return a finding about another address of the same hub."""
    from hubbub_client.errors import HubbubError

    about = f"address {settings.address}"
    try:
        async with settings.connect(patient=False) as hub:
            other_status = await hub.admin.status()
    except HubbubError as error:
        return _make_finding(about, "warn", f"{error.message} ({error.reason})", "start it, or leave the address out")
    if status.store and other_status.store and status.store.id != other_status.store.id:
        advice = "name only addresses of one hub: members of one fleet"
        return _make_finding(about, "fail", "it is of another hub, with records of its own", advice)
    return _make_finding(about, "ok", f"{other_status.version}, started {relative_time(other_status.started_at)}")


def _drop_contradicted(results: Sequence[CheckResult]) -> list[CheckResult]:
    """Return the findings, but without an `ok` about a subject with which another finding says something is wrong."""
    problem_subjects = {each.finding.about for each in results if each.finding.verdict != "ok"}
    return [each for each in results if each.finding.verdict != "ok" or each.finding.about not in problem_subjects]


def _make_finding(about: str, verdict: Verdict, message: str, advice: str | None = None) -> Finding:
    from hubbub_client.services.admin import Finding

    return Finding(about=about, verdict=verdict, message=message, advice=advice)


def _explain_refusal(error: HubbubError, settings: Settings, *, elsewhere: bool) -> Finding:
    """Return the finding about a hub that does not answer, or refuses; `elsewhere`: the hub is on another machine."""
    if error.reason != "HUB_UNREACHABLE":
        advice = help_hint(error.reason, error.help_url) or "check --address, --token and --ca"
    elif elsewhere:
        advice = "check the address; without --address and HUBBUB_ADDRESS, the hub of this machine is asked"
    else:
        start = settings.command("up", "-d")
        advice = f"start one: {start}; `hubbubd --check-config` with its options says whether it would start"
    return _make_finding("hub", "fail", f"{error.message} ({error.reason})", advice)


def _check_status(hub: Hub, status: HubStatus) -> Iterator[Finding]:
    """Yield whether the hub takes work, whether it has this version, and whether its clock agrees with this one."""
    address = describe_address(hub.address, hub.addresses)
    started = f"{status.version} at {address}, started {relative_time(status.started_at)}"
    if status.serving:
        yield _make_finding("hub", "ok", started)
    else:
        yield _make_finding(
            "hub", "fail", f"{started}; it takes no new work", "what is wrong with its store stands below"
        )
    client_version = version("hubbub")
    if status.version == client_version:
        yield _make_finding("versions", "ok", f"hub and client are {client_version}")
    else:
        message = f"the hub is {status.version}, this client {client_version}"
        yield _make_finding("versions", "warn", message, "use the same, or restart a hub that was upgraded")
    if status.now is not None:
        skew = datetime.now(UTC) - status.now
        advice = "set the clocks of both machines by NTP"
        if abs(skew) < MAX_CLOCK_SKEW:
            yield _make_finding("clock of this machine", "ok", "it agrees with the hub's")
        else:
            message = f"{abs(skew).total_seconds():.0f} s {'ahead of' if skew > timedelta() else 'behind'} the hub's"
            yield _make_finding("clock of this machine", "warn", message, advice)


def _check_servers(servers: Sequence[Server]) -> Iterator[Finding]:
    """Yield for each server whether it is in the wanted state, and what to do if not; a warning if there are none."""
    if not servers:
        yield _make_finding("servers", "warn", "the hub has none yet", ADD_A_SERVER)
    for server in servers:
        about = f"server {server.name}"
        fault = server.error
        # A server that fails again and again is `connecting` in between.
        as_wanted = server.state == server.desired_state or (server.state == "connecting" and not fault)
        if as_wanted and not server.gave_up:
            yield _make_finding(about, "ok", server.state)
            continue
        message = f"{server.state}: {describe_trouble(server)}" if fault else server.state
        yield _make_finding(about, "fail", message, _advise_on_server(server))


def _advise_on_server(server: Server) -> str | None:
    """Return what to do about a server that is not in the wanted state; None if nothing is known to help."""
    fault = server.error
    if fault is None:
        return f"hubbub servers connect {server.name}"
    lines = [ADVICE.get(fault.code, "")]
    if fault.code == "COMMAND_NOT_FOUND":
        command = Path(str(as_object(fault.details).get("command", ""))).name
        lines = [_advise_on_command(command) or lines[0]]
    if server.gave_up:
        lines.append(f"{'then: ' if lines[0] else ''}hubbub servers connect {server.name}")
    if more := help_hint(fault.code, fault.help_url):
        lines.append(f"more: {more}")
    return "\n".join(filter(None, lines)) or None


def _advise_on_command(command: str) -> str | None:
    """Return how to install a command on the hub's machine; None for a command that is not known here."""
    if command in IMAGE_COMMANDS and files.is_system_read_only():
        return f"use the image with {command}: HUBBUB_TARGET=tools docker compose up --build -d, or --target tools"
    return INSTALL.get(command)


def _check_lists(lists: Sequence[CatalogList], settings: Settings) -> Iterator[Finding]:
    """Yield a finding about each list of the catalog that could not be fetched."""
    for each in lists:
        if each.freshness == "error" and each.error:
            message = describe_fault(each.error)
            advice = settings.command("catalog", "refresh", each.server)
            yield _make_finding(f"{each.kind}s of {each.server}", "fail", message, advice)


def _check_inbox(requests: Sequence[PendingRequest], command: str) -> Iterator[Finding]:
    """Yield one finding about the open requests of the inbox. Its verdict is `fail` if a request expires soon.

    `command` is the command that answers a request, without the id.
    """
    limit = datetime.now(UTC) + EXPIRES_SOON
    expiring = [each for each in requests if each.deadline and each.deadline < limit]
    message = f"{len(requests)} open, {len(expiring)} of them end within a minute"
    yield _make_finding(
        "inbox", "fail" if expiring else "ok", message, f"{command} {expiring[0].id}" if expiring else None
    )
