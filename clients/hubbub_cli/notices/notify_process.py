"""Notifications beside a hub that `hubbub up` starts: `hubbub notify`, for as long as the hub runs."""

import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hubbub_cli.output.printer import note

if TYPE_CHECKING:
    from asyncio.subprocess import Process

NOT_SENT = "nobody is notified of what waits"


def find_notify_file(config: Sequence[str]) -> Path | None:
    """Return the first configuration file of the hub whose table `[notify]` has urls; None if no file has.

    What is wrong with such a table is printed: the hub starts all the same.
    """
    from hubbub_local.platform_dirs import Machine, find_config_file, list_config_files
    from hubbub_notify.rules import NoticeRuleProblem, UnreadableRules, parse_rules, read_table

    config_files = [Path(each).expanduser() for each in config]
    for file in config_files or list_config_files(os.environ) or [find_config_file(Machine.here())]:
        if not file.is_file():
            continue
        try:
            content = read_table(file, os.environ)
            if not content:
                continue
            if not parse_rules(content, f"{file}: notify.").urls:
                continue
        except UnreadableRules:  # the hub says what is wrong with its file
            continue
        except NoticeRuleProblem as problem:
            note(f"{NOT_SENT}: {problem}")
            continue
        return file
    return None


def make_command_with_notify(data_dir: str | None, config: Sequence[str], listen: str | None) -> list[str]:
    """Return the command `hubbub up`, which runs a hub with its notifications and prints the hub's ready line."""
    options = [*(["--data-dir", data_dir] if data_dir else []), "--json", "up"]
    options += [word for each in config for word in ("--config", each)]
    return [sys.executable, "-m", "hubbub_cli", *options, *(["--listen", listen] if listen else [])]


@asynccontextmanager
async def run_notify(file: Path | None, data_dir: str, *, aloud: bool) -> AsyncGenerator[None]:
    """Run `hubbub notify` with the rules of a file for a block, and end it after; without a file, run nothing.

    With `aloud`, its output is shown here. If it ends before the block, that is printed.
    """
    if file is None:
        yield
        return
    import asyncio
    from asyncio.subprocess import DEVNULL

    arguments = ["-m", "hubbub_cli", "--data-dir", data_dir, "notify", "--config", str(file)]
    output = None if aloud else DEVNULL
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=DEVNULL, stdout=output, stderr=output, start_new_session=True
    )
    waiting = asyncio.create_task(_report_end(process))
    try:
        yield
    finally:
        waiting.cancel()
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _report_end(process: "Process") -> None:
    """Wait for the end of `hubbub notify`, and print its status."""
    status = await process.wait()
    note(f"{NOT_SENT}: hubbub notify has ended with status {status}")
