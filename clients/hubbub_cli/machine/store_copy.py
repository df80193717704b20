"""Copies a store: `hubbubd --copy-store` does it, and this program shows how far it is and how it has ended."""

import asyncio
import json
import re
import signal
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

PROGRESS: Final = re.compile(r"(\d{1,15}) of (\d{1,15}) records copied")
MOST: Final = 10**15
"""More records than any store has."""

REASON: Final = "STORE_NOT_COPIED"
WRONG_USAGE: Final = 2
_PREFIXES: Final = ("hubbubd: ", "--copy-store: ", "usage: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOrder:
    """What is to be copied where; `config` has the hub's configuration files, none is the default one."""

    source: str
    target: str
    secrets: bool
    verify: bool
    config: tuple[str, ...]

    def words(self, data_dir: str | None) -> list[str]:
        """Return the command that does it. Raises FailedPrecondition if `hubbubd` is not installed."""
        try:
            program = daemon.command(data_dir, config=self.config)
        except daemon.NotStarted as error:
            raise FailedPrecondition(str(error), reason=REASON) from None
        options = [name for name, given in (("--secrets", self.secrets), ("--verify", self.verify)) if given]
        return [*program, *options, "--copy-store", self.source, self.target]


async def copied(order: CopyOrder, data_dir: str | None, meter: ProgressLine) -> dict[str, Any]:
    """Make a copy, or compare with one that is there; return what was done as `hubbubd` says it.

    `equal` in it is None unless both were compared. Raises Usage, and FailedPrecondition when nothing was copied.
    """
    # In a session of its own, so that Ctrl-C reaches it once: from here.
    process = await asyncio.create_subprocess_exec(
        *order.words(data_dir), stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(signum, _end, process)
    assert process.stdout is not None
    try:
        out, said = await asyncio.gather(process.stdout.read(), _told(process, meter))
        status = await process.wait()
    finally:
        meter.hide()
        _end(process)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(signum)
    if done := _done(out):
        return done
    if status == WRONG_USAGE:
        raise Usage(said)
    raise FailedPrecondition(said or f"hubbubd has ended with status {status}", reason=REASON)


async def _told(process: Process, meter: ProgressLine) -> str:
    """Show progress until the process says nothing more; return the last of what else it said."""
    said = ""
    assert process.stderr is not None
    async for line in process.stderr:
        text = line.decode(errors="replace").strip()
        if found := PROGRESS.fullmatch(text):
            meter.print_step(text, whole_text(found[1], MOST), whole_text(found[2], MOST))
        elif text:
            said = text
    for prefix in _PREFIXES:
        said = said.removeprefix(prefix)
    return said


def _end(process: Process) -> None:
    if process.returncode is None:
        process.terminate()


def _done(line: bytes) -> dict[str, Any] | None:
    try:
        done: object = json.loads(line)
    except ValueError:
        return None
    return done if isinstance(done, dict) else None  # pyright: ignore[reportUnknownVariableType]


def print_copied(done: Mapping[str, Any]) -> None:
    """Print for people what was copied, and in what both stores differ."""
    rows = [
        ("from", str(done["from"])),
        ("to", str(done["to"])),
        ("copied", "yes" if done["copied"] else "no, it had records already"),
        ("records", str(done["records"])),
        ("deletions", str(done["deletions"])),
        ("revision", str(done["revision"])),
    ]
    if done["secrets"] is not None:
        rows.append(("secrets", f"of {done['secrets']} servers"))
    if done["equal"] is not None:
        rows.append(("compared", "equal" if done["equal"] else f"{done['differing']} differences"))
    print_counts(rows)
    for each in done["differences"]:
        say(each["key"] or "(the whole)", each["how"])
    differing, named = whole(done["differing"]) or 0, len(done["differences"])
    if differing > named:
        say(f"and {differing - named} more")
