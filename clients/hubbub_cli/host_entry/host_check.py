"""`hubbub mcp check HOST`: what a host has in its files of the hub, and what its own command says of it."""

import asyncio
import contextlib
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hubbub_cli.host_entry.direct_servers import list_direct_servers
from hubbub_cli.host_entry.entry_trial import find_headers, find_url, has_variables, try_entry
from hubbub_local.hosts.files import is_readable_by_others
from hubbub_local.hosts.imports import import_server, is_hub
from hubbub_local.hosts.kinds import NAME, HostProgram, Listing
from hubbub_local.hosts.listings import ListedServer, find_listed_server, find_warnings, split_lines
from hubbub_local.hosts.offers import make_text_environment
from hubbub_local.hosts.servers import FoundServer, ServerTable, Trouble, list_server_tables, read_servers
from hubbub_local.hosts.switches import format_server_name
from hubbub_local.platform_dirs import Machine
from hubbub_shared.platform import processes

if TYPE_CHECKING:
    from hubbub_cli.run.session import Settings

MAX_OUTPUT_BYTES: Final = 256 * 1024
"""The most that is read of what a host's command prints."""


@dataclass(frozen=True, slots=True)
class EntryFault:
    """What is wrong with the hub at a host, and what to do next."""

    what: str
    next_step: str

    def to_json(self) -> dict[str, str]:
        """Return the fault as JSON values."""
        return {"what": self.what, "next_step": self.next_step}


@dataclass(slots=True)
class HostFindings:
    """What was found at a host."""

    host: HostProgram
    file: Path
    route: str = ""
    """How the host's entry reaches the hub, for people; empty if it has no entry."""

    faults: list[EntryFault] = field(default_factory=list[EntryFault])
    direct: list[str] = field(default_factory=list[str])
    """Servers of the hub that the host has directly as well."""

    entries: list[str] = field(default_factory=list[str])
    """The host's entries of the hub, by name."""

    program: str | None = None
    """The path of the host's own command that lists its servers; None if it has none, or none on PATH."""

    listed_server: ListedServer | None = None
    """The line of that command about the hub; None if it prints none."""
    warnings: list[str] = field(default_factory=list[str])

    def to_json(self) -> dict[str, Any]:
        """Return the findings as JSON values."""
        listed = (
            {"state": self.listed_server.state, "lines": list(self.listed_server.lines)} if self.listed_server else None
        )
        return {
            "host": self.host.name,
            "file": str(self.file),
            "entries": self.entries,
            "way": self.route,
            "direct": self.direct,
            "program": self.program,
            "listed": listed,
            "warnings": self.warnings,
            "faults": [each.to_json() for each in self.faults],
        }


async def check_host(settings: "Settings", host: HostProgram, limit_s: float) -> HostFindings:
    """Read the host's files, try its entry of the hub, and run its own command; return what was found.

    The command may take `limit_s` seconds.
    """
    machine = Machine.here()
    findings = HostFindings(host, host.file(machine))
    install = settings.command("mcp", "install", host.name)
    tables = [each for each in list_server_tables(machine, Path.cwd()) if _is_read_by(host, each)]
    hub_entry = _find_entries(findings, tables, install)
    findings.direct = [format_server_name(each) for each in list_direct_servers(tables)]
    if host.listing is not None:
        await _run_listing(findings, host.listing, limit_s)
    if hub_entry is None:
        findings.faults.append(EntryFault(f"{findings.file} has no entry of the hub", install))
        return findings
    # Otherwise the host itself has said that it works, or why the entry is not used.
    if findings.listed_server is None or findings.listed_server.state in ("failed", "listed", "needs log-in"):
        await _try_entry(findings, hub_entry.entry, install)
    return findings


def _is_read_by(host: HostProgram, table: ServerTable) -> bool:
    """Return whether a host reads a table of servers: its own, and for Claude Code the `.mcp.json` of a folder."""
    return table.host == host.name or (table.host == "folder" and host.name == "claude-code")


def _find_entries(findings: HostFindings, tables: list[ServerTable], install: str) -> FoundServer | None:
    """Return the host's entry of the hub; None if the host has none. Of several, the one of the usual name counts.

    What is known of the entry, and what is wrong with it and with the host's files, is added to the findings.
    """
    entries: list[FoundServer] = []
    for each in (each for table in tables for each in read_servers(table)):
        if isinstance(each, Trouble):
            findings.faults.append(
                EntryFault(f"{each.place.file}: {each.why}", "correct it in an editor, then check again")
            )
        elif is_hub(each):
            entries.append(each)
    findings.entries = [format_server_name(each) for each in entries]
    if not entries:
        return None
    hub_entry = next((each for each in entries if each.name == NAME), entries[0])
    url = find_url(hub_entry.entry)
    has_token = has_variables(hub_entry.entry) or any(
        name.lower() == "authorization" for name in find_headers(hub_entry.entry)
    )
    findings.route = f"{url}, {'with a token' if has_token else 'where it logs in'}" if url else "the bridge"
    if len({each.name for each in entries}) > 1:
        names = ", ".join(findings.entries)
        findings.faults.append(EntryFault(f"the hub is there {len(entries)} times: {names}", "take out all but one"))
    if has_token and is_readable_by_others(hub_entry.place.file):
        step = shlex.join(("chmod", "600", str(hub_entry.place.file)))
        findings.faults.append(EntryFault(f"others can read {hub_entry.place.file}, which has a token", step))
    if import_server(hub_entry, make_text_environment(Machine.here())).disabled:
        findings.faults.append(
            EntryFault(f"{hub_entry.name} is switched off there", _find_switch(findings.host, hub_entry))
        )
    return hub_entry


def _find_switch(host: HostProgram, server: FoundServer) -> str:
    """Return in words how to switch on a server that is switched off at a host."""
    off_list = server.place.off_list
    if off_list is not None and server.is_off:
        return f"take {server.name} out of `{'.'.join(off_list.path)}` in {off_list.file}"
    flag = ", ".join(f"`{key}` to {str(not value).lower()}" for key, value in (host.flag_off or {}).items())
    return f"set {flag} in its entry in {server.place.file}" if flag else f"switch it on in {host.title}"


async def _run_listing(findings: HostFindings, listing: Listing, limit_s: float) -> None:
    """Run the host's own command, if it is on PATH, and add to the findings what it says of the hub."""
    command = listing.command
    command_text = shlex.join(command)
    program = shutil.which(command[0])
    if program is None:
        return
    findings.program = program
    status, output = await _run_command([program, *command[1:]], limit_s)
    lines = split_lines(output)
    findings.warnings = find_warnings(lines)
    # An entry for a folder is called `NAME in FOLDER` in the findings, and NAME in the host's list.
    findings.listed_server = find_listed_server(lines, next(iter(findings.entries), NAME).partition(" in ")[0])
    if status is None:
        step = "start it by hand; a server of its own may keep it waiting (`--limit S` waits longer)"
        findings.faults.append(EntryFault(f"`{command_text}` did not end within {limit_s:g} s", step))
    elif status:
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")
        findings.faults.append(
            EntryFault(f"`{command_text}` ended with status {status}: {last}", f"start it by hand: {command_text}")
        )
    elif findings.listed_server is None and findings.entries:
        findings.faults.append(
            EntryFault(f"`{command_text}` does not list the hub", f"does it read another file than {findings.file}?")
        )
    findings.faults += _find_listing_faults(findings)


def _find_listing_faults(findings: HostFindings) -> Iterator[EntryFault]:
    """Yield what is wrong according to the host's own list: the hub is not approved, or switched off.

    If the findings already say that the hub is switched off, this is not repeated.
    """
    host, listed_server = findings.host, findings.listed_server
    match listed_server.state if listed_server else None:
        case "not approved":
            yield EntryFault(f"{host.title} does not use it before you approve it", "start it here, and approve it")
        case "switched off" if not any("switched off" in each.what for each in findings.faults):
            yield EntryFault(f"{host.title} has it switched off here", "trust this folder there, or switch it on there")
        case _:
            pass


async def _run_command(command: list[str], limit_s: float) -> tuple[int | None, str]:
    """Run a command, and return its exit status and what it printed on both streams, MAX_OUTPUT_BYTES at most.

    The status is 127 if it cannot be started, None if it was killed after `limit_s` seconds.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "NO_COLOR": "1"},
            start_new_session=True,
        )
    except OSError as error:
        return 127, error.strerror or str(error)
    assert process.stdout is not None
    output = bytearray()
    status: int | None = None
    try:
        async with asyncio.timeout(limit_s):
            while chunk := await process.stdout.read(65536):
                output += chunk[: MAX_OUTPUT_BYTES - len(output)]
            status = await process.wait()
    except TimeoutError:
        pass
    finally:
        # The whole group: what the command has started and left behind is ended, too.
        with contextlib.suppress(ProcessLookupError):
            processes.kill_group(process.pid)
        await process.wait()
    return status, output.decode(errors="replace")


async def _try_entry(findings: HostFindings, entry: Mapping[str, Any], install: str) -> None:
    """Connect as the entry says, and add to the findings what is wrong, and what to do next.

    An entry with variables is not tried. What the host itself said of the hub decides how a failure is explained.
    """
    host, state = findings.host, findings.listed_server.state if findings.listed_server else None
    if has_variables(entry):
        findings.warnings.append(f"the entry was not tried: only {host.title} knows the variables in it")
        return
    trial = await try_entry(entry)
    if trial.is_log_in_off:
        step = f"set `mcp_login` in the hub's configuration, or give it a token: {install} --http"
        findings.faults.append(EntryFault(f"the entry does not work: {trial.fault}", step))
    elif trial.fault:
        step = f"hubbub doctor; or write it again: {install}"
        findings.faults.append(EntryFault(f"the entry does not work: {trial.fault}", step))
    elif state == "needs log-in" or (trial.needs_log_in and state == "failed"):
        step = f"{host.log_in}; `hubbub mcp login` prints the code for its page"
        findings.faults.append(EntryFault(f"{host.title} has to log in", step))
    elif state == "failed":
        step = f"start {host.title} again; if it still fails, write the entry again: {install}"
        findings.faults.append(EntryFault(f"{host.title} could not connect, but the entry works from here", step))
    elif trial.needs_log_in:
        findings.warnings.append(f"if it has not logged in yet: {host.log_in}")
