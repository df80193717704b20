"""`hubbub mcp check`: what came of connecting as a host does, and what was found at a host."""

import shlex
from typing import TYPE_CHECKING

from hubbub_cli.output.printer import note, say
from hubbub_local.hosts import permits
from hubbub_local.platform_dirs import Machine

if TYPE_CHECKING:
    from hubbub_bridge.trial import Trial
    from hubbub_cli.host_entry.host_check import HostFindings


def print_trial(trial: "Trial") -> None:
    """Print what came of connecting as a host with one kind of MCP revision: why it failed, or what the host sees."""
    if trial.failure:
        say(f"{trial.revision}: {trial.failure}")
        return
    counts = ", ".join(f"{count} {name}" for name, count in trial.counts.items())
    say(f"{trial.revision}: {trial.server}, {counts}")
    for warning in trial.warnings:
        say(f"  {warning}")


def print_permits(trial: "Trial", machine: Machine) -> None:
    """Print whether the hub has the tool that asks people for permission, and whether Claude Code's settings use it.

    Nothing is printed if the hub has no such tool and the settings use none.
    """
    file = permits.find_settings_file(machine)
    if trial.permits:
        say(f"  permits: {permits.PERMIT}; Claude Code {'asks' if permits.has_hook(file) else 'does not ask'} there")
    elif permits.has_hook(file):
        say(f"  permits: {file} asks {permits.PERMIT}, which is not there: set `people = true` for the profile")


def print_questions(routes: dict[str, str]) -> None:
    """Print for each kind of question of servers who is asked: the host, the inbox, or both."""
    descriptions = {
        "both": "host and inbox at once",
        "host-first": "the host if it can, else the inbox",
        "host": "the host alone",
        "inbox": "the inbox alone",
    }
    for kind in sorted(routes):
        say(f"  {kind}: {descriptions.get(routes[kind], routes[kind])}")


def print_host(findings: "HostFindings") -> None:
    """Print what was found at a host, each fault with what to do next."""
    host = findings.host
    say(f"{host.title}: {findings.file}" + (f" has {findings.route}" if findings.route else ""))
    if host.listing is None:
        say("  it has no command that lists its servers: its file was checked, and its entry tried")
    elif findings.program is None:
        say(f"  {host.listing.command[0]} is not in PATH: its file was checked, and its entry tried")
    else:
        listed_server = findings.listed_server
        hint = "" if host.listing.connects else " (it lists, and does not connect)"
        say(f"  `{shlex.join(host.listing.command)}` says{hint}:" + ("" if listed_server else " nothing of the hub"))
        for line in (*(listed_server.lines if listed_server else ()), *findings.warnings):
            say(f"    {line}")
    if findings.direct:
        say(f"  there directly as well, past the inbox: {', '.join(findings.direct)}")
        note(f"to switch them off there: hubbub mcp install {host.name} --replace")
    for fault in findings.faults:
        say(f"  {fault.what}")
        note(f"    next: {fault.next_step}")
    if not findings.faults:
        say("  all is well")
