"""A person at the terminal: typed lines, choices, texts from their editor. Waiting does not block the event loop."""

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from hubbub_cli.output.printer import console, note

if TYPE_CHECKING:
    from rich.text import Text


async def read_line(prompt: str) -> str:
    """Read one line from the terminal. A cancelled wait leaves nothing behind. Raises EOFError at the end of input."""
    note(prompt, end="")
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    line = sys.stdin.readline()
    if not line:
        note("")  # else what is said next stands behind the prompt
        raise EOFError
    return line.strip()


async def choose_letter(choices: Mapping[str, str], default: str = "") -> str:
    """Ask for one of the choices, each a letter and its label: `{"a": "[a]ccept"}`. Raises EOFError.

    The beginning of a label from its bracket on is an answer, also after the `!` that leaves a form. Enter alone is the
    default, if there is one.
    """
    *first_labels, last_label = choices.values()
    default_hint = f" [{default}]" if default else ""
    while True:
        typed = (
            (await read_line(f"{', '.join(first_labels)} or {last_label}?{default_hint} ")).lower() or default
        ).removeprefix("!")
        for letter, label in choices.items():
            word = label[label.index("[") :].replace("[", "").replace("]", "")
            # The whole typed word counts, and not its first letter alone: `curry` does not mean cancel.
            if typed and word.startswith(typed):
                return letter
        *first_letters, last_letter = choices
        note(f"type {', '.join(first_letters)} or {last_letter}")


def print_text(text: "Text") -> None:
    """Print a coloured text on stderr, wrapped only by the terminal, so that it can be copied."""
    console(stderr=True).print(text, soft_wrap=True)


async def edit_text(text: str, name: str = "reply.md") -> str | None:
    """Return the text as the person left it in their editor (VISUAL, EDITOR, else vi).

    None, after a line that says why, if the editor failed. `name` is the name of the file, by which an editor knows
    which kind of text it has.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="hubbub-") as directory:
        file = anyio.Path(directory) / name
        await file.write_text(text, encoding="utf-8")
        try:
            command = [*shlex.split(editor), str(file)]
            process = await anyio.run_process(command, stdin=None, stdout=None, stderr=None, check=False)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            note(f"the editor {editor!r} cannot be started: {error}; set EDITOR")
            return None
        if process.returncode:
            note(f"the editor ended with {process.returncode}")
            return None
        return await _read_edited(Path(str(file)))


async def _read_edited(file: Path) -> str | None:
    """Return the text of a file that was edited; None, after a line that says why, if it cannot be read."""
    try:
        return (await anyio.Path(file).read_text(encoding="utf-8")).strip()
    except (OSError, ValueError) as error:
        note(f"what the editor left cannot be read: {error}")
        return None
