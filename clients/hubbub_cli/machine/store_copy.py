"""Copies a store: `hubbubd --copy-store` does it, and this program shows how far it is and how it has ended."""

import asyncio
import json
import re
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hubbub_cli.output.printer import print_counts, say
from hubbub_cli.output.progress_line import ProgressLine
from hubbub_cli.run.session import Usage
from hubbub_client.errors import FailedPrecondition
from hubbub_client.numbers import whole, whole_text
from hubbub_local import daemon
from hubbub_shared.platform.processes import ENDING_SIGNALS

PROGRESS: Final = re.compile(r"(\d{1,15}) of (\d{1,15}) records copied")
MAX_RECORDS: Final = 10**15
"""More records than any store has."""

REASON: Final = "STORE_NOT_COPIED"
WRONG_USAGE: Final = 2
_PREFIXES: Final = ("hubbubd: ", "--copy-store: ", "usage: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOrder:
    """What is to be copied where; `config` has the hub's configuration files; empty for the default one."""

    source: str
    target: str
    secrets: bool
    verify: bool
    config: tuple[str, ...]

    def make_command_line(self, data_dir: str | None) -> list[str]:
        """Return the command that makes the copy. Raises FailedPrecondition if `hubbubd` is not installed."""
        try:
            program = daemon.make_command(data_dir, config=self.config)
        except daemon.NotStarted as error:
            raise FailedPrecondition(str(error), reason=REASON) from None
        options = [name for name, given in (("--secrets", self.secrets), ("--verify", self.verify)) if given]
        return [*program, *options, "--copy-store", self.source, self.target]


async def copy_store(order: CopyOrder, data_dir: str | None, meter: ProgressLine) -> dict[str, Any]:
    """Copy a store, or compare it with a copy that is there; show the progress, and return the report of `hubbubd`.

    `equal` in the report is None unless both stores were compared. Raises Usage, and FailedPrecondition if nothing was
    copied. A signal that ends this program ends the copy, too.
    """
    # In a session of its own, so that Ctrl-C reaches it once: from here.
    process = await asyncio.create_subprocess_exec(
        *order.make_command_line(data_dir), stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    loop = asyncio.get_running_loop()
    for number in ENDING_SIGNALS:
        loop.add_signal_handler(number, _terminate, process)
    assert process.stdout is not None
    try:
        report_line, last_line = await asyncio.gather(process.stdout.read(), _print_progress(process, meter))
        status = await process.wait()
    finally:
        meter.hide()
        _terminate(process)
        for number in ENDING_SIGNALS:
            loop.remove_signal_handler(number)
    if report := _parse_report(report_line):
        return report
    if status == WRONG_USAGE:
        raise Usage(last_line)
    raise FailedPrecondition(last_line or f"hubbubd has ended with status {status}", reason=REASON)


async def _print_progress(process: Process, meter: ProgressLine) -> str:
    """Print the progress of the copy until the process closes stderr; return its last line that is no progress."""
    last_line = ""
    assert process.stderr is not None
    async for line in process.stderr:
        text = line.decode(errors="replace").strip()
        if progress := PROGRESS.fullmatch(text):
            meter.print_step(text, whole_text(progress[1], MAX_RECORDS), whole_text(progress[2], MAX_RECORDS))
        elif text:
            last_line = text
    for prefix in _PREFIXES:
        last_line = last_line.removeprefix(prefix)
    return last_line


def _terminate(process: Process) -> None:
    """Ask a process to end, unless it has ended."""
    if process.returncode is None:
        process.terminate()


def _parse_report(line: bytes) -> dict[str, Any] | None:
    """Return the report that `hubbubd` prints at the end; None if it has printed none."""
    try:
        report: object = json.loads(line)
    except ValueError:
        return None
    return report if isinstance(report, dict) else None  # pyright: ignore[reportUnknownVariableType]


def print_copy_report(report: Mapping[str, Any]) -> None:
    """Print for people what was copied, and in what both stores differ."""
    rows = [
        ("from", str(report["from"])),
        ("to", str(report["to"])),
        ("copied", "yes" if report["copied"] else "no, it had records already"),
        ("records", str(report["records"])),
        ("deletions", str(report["deletions"])),
        ("revision", str(report["revision"])),
    ]
    if report["secrets"] is not None:
        rows.append(("secrets", f"of {report['secrets']} servers"))
    if report["equal"] is not None:
        rows.append(("compared", "equal" if report["equal"] else f"{report['differing']} differences"))
    print_counts(rows)
    for each in report["differences"]:
        say(each["key"] or "(the whole)", each["how"])
    differing, listed = whole(report["differing"]) or 0, len(report["differences"])
    if differing > listed:
        say(f"and {differing - listed} more")
