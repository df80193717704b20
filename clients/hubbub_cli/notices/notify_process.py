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


def table_of(config: Sequence[str]) -> Path | None:
    """Return the first configuration file of the hub whose table `[notify]` says where to send to.

    It says on stderr what is wrong with such a table: the hub starts all the same.
    """
    from hubbub_local.platform_dirs import Machine, config_file
    from hubbub_notify.rules import NoticeRuleProblem, UnreadableRules, parse_rules, read_table

    named = config or [each for each in os.environ.get("HUBBUBD_CONFIG", "").split(os.pathsep) if each]
    for file in [Path(each).expanduser() for each in named] or [config_file(Machine.here())]:
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


def supervised(given: str | None, config: Sequence[str], listen: str | None) -> list[str]:
    """Return the command that runs a hub with its notifications in the background, and says the hub's ready line."""
    options = [*(["--data-dir", given] if given else []), "--json", "up"]
    options += [word for each in config for word in ("--config", each)]
    return [sys.executable, "-m", "hubbub_cli", *options, *(["--listen", listen] if listen else [])]


@asynccontextmanager
async def notifying(file: Path | None, data_dir: str, *, aloud: bool) -> AsyncGenerator[None]:
    """Run `hubbub notify` for a block, if there is a table for it; `aloud`: what it sends is told here."""
    if file is None:
        yield
        return
    import asyncio
    from asyncio.subprocess import DEVNULL

    words = ["-m", "hubbub_cli", "--data-dir", data_dir, "notify", "--config", str(file)]
    told = None if aloud else DEVNULL
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdin=DEVNULL, stdout=told, stderr=told, start_new_session=True
    )
    watching = asyncio.create_task(_tell_of_its_end(process))
    try:
        yield
    finally:
        watching.cancel()
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _tell_of_its_end(process: "Process") -> None:
    status = await process.wait()
    note(f"{NOT_SENT}: hubbub notify has ended with status {status}")
