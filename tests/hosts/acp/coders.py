"""Coding agents that speak ACP, by the names that `servers add --agent` has for them, and the work of their models."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..real.dialects import MODEL, Use
from ..real.places import Place
from ..real.programs import (
    CLAUDE_CODE,
    CODEX,
    COPILOT_CLI,
    GEMINI_CLI,
    OPENCODE,
    QWEN_CODE,
    Program,
    command_of,
    prepare,
)

FILES = {"notes.txt": "first\n"}
"""What is in the folder of work before."""
DONE = {"a.txt": "alpha\n", "notes.txt": "second\n", "both.txt": "second\nalpha\n"}
"""What is in it after the work: one file is new, one is changed, and a command has made the third out of both."""
COMMAND = "cat notes.txt a.txt > both.txt"
WHY = "Join the files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coder:
    """A coding agent. `work` has the calls of its model for a folder: two files and a command, each of which is asked.

    `edits` is how many questions there are about the two files; one more is about the command.
    """

    name: str
    """For `--agent`."""
    program: Program
    started_as: str
    """The program that `--agent` looks for."""
    work: Callable[[Path], Sequence[Use]]
    edits: int = 2
    keys: Sequence[str] = ()
    """Variables without which it is not logged in; none if a scripted model needs no log-in."""
    files: Callable[[Place], Mapping[str, str]] = lambda _: {}
    """What it has in its home beside the settings of the program, if it is logged in."""
    loses_young_sessions: bool = False
    """Whether it empties the record of a session that it loads in the minute of the clock in which that began."""

    def install(self, directory: Path, peers: Path) -> None:
        """Make the program that `--agent` looks for."""
        directory.mkdir(exist_ok=True)
        script = directory / self.started_as
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command_of(self.program, peers))} "$@"\n')
        script.chmod(0o755)

    def prepare(self, place: Place, *, logged_in: bool) -> None:
        """Write what it has in its home."""
        prepare(self.program, place)
        for name, text in self.files(place).items() if logged_in else ():
            file = place.home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


def _claude_work(folder: Path) -> Sequence[Use]:
    notes = str(folder / "notes.txt")
    return (
        Use("Write", {"file_path": str(folder / "a.txt"), "content": "alpha\n"}),
        Use("Read", {"file_path": notes}),
        Use("Edit", {"file_path": notes, "old_string": "first", "new_string": "second"}),
        Use("Bash", {"command": COMMAND, "description": WHY}),
    )


def _opencode_work(folder: Path) -> Sequence[Use]:
    notes = str(folder / "notes.txt")
    return (
        Use("write", {"filePath": str(folder / "a.txt"), "content": "alpha\n"}),
        Use("read", {"filePath": notes}),
        Use("edit", {"filePath": notes, "oldString": "first", "newString": "second"}),
        Use("bash", {"command": COMMAND, "description": WHY}),
    )


def _gemini_work(folder: Path) -> Sequence[Use]:
    change = {"old_string": "first", "new_string": "second", "instruction": "Change the first line"}
    return (
        Use("write_file", {"file_path": str(folder / "a.txt"), "content": "alpha\n"}),
        Use("replace", {"file_path": str(folder / "notes.txt"), **change}),
        Use("run_shell_command", {"command": COMMAND, "description": WHY}),
    )


def _qwen_work(folder: Path) -> Sequence[Use]:
    notes = str(folder / "notes.txt")
    return (
        Use("write_file", {"file_path": str(folder / "a.txt"), "content": "alpha\n"}),
        Use("read_file", {"file_path": notes}),
        Use("edit", {"file_path": notes, "old_string": "first", "new_string": "second"}),
        Use("run_shell_command", {"command": COMMAND, "description": WHY, "is_background": False}),
    )


PATCH = """\
apply_patch <<'EOF'
*** Begin Patch
*** Add File: a.txt
+alpha
*** Update File: notes.txt
@@
-first
+second
*** End Patch
EOF
"""


def _codex_work(_folder: Path) -> Sequence[Use]:
    outside = {"sandbox_permissions": "require_escalated", "justification": WHY}
    return (Use("exec_command", {"cmd": PATCH}), Use("exec_command", {"cmd": COMMAND, **outside}))


def _codex_files(place: Place) -> Mapping[str, str]:
    settings = (
        f'model = "{MODEL}"\nmodel_provider = "script"\ncheck_for_update_on_startup = false\n'
        f'[model_providers.script]\nname = "script"\nbase_url = "{place.model}/v1"\nwire_api = "responses"\n'
        'env_key = "SCRIPT_KEY"\n[analytics]\nenabled = false\n'
    )
    return {".codex/config.toml": settings}


def _copilot_work(folder: Path) -> Sequence[Use]:
    return (
        Use("create", {"path": str(folder / "a.txt"), "file_text": "alpha\n"}),
        Use("edit", {"path": str(folder / "notes.txt"), "old_str": "first", "new_str": "second"}),
        Use("bash", {"command": COMMAND, "description": WHY, "sessionId": "1", "mode": "sync", "initial_wait": 10}),
    )


def _adapter(program: Program, name: str) -> Program:
    """Return a program of another folder that starts this one's own, with the same settings."""
    folder = f"node_modules/@agentclientprotocol/{name}"
    file, package = f"{folder}/dist/index.js", f"{folder}/package.json"
    return replace(program, file=file, package=package, runner="node", peers="acp")


CODERS = (
    Coder(name="opencode", program=OPENCODE, started_as="opencode", work=_opencode_work),
    Coder(
        name="gemini",
        program=GEMINI_CLI,
        started_as="gemini",
        work=_gemini_work,
        keys=["GEMINI_API_KEY"],
        loses_young_sessions=True,
    ),
    Coder(name="qwen", program=QWEN_CODE, started_as="qwen", work=_qwen_work, keys=["OPENAI_API_KEY"]),
    Coder(
        name="claude",
        program=_adapter(CLAUDE_CODE, "claude-agent-acp"),
        started_as="claude-agent-acp",
        work=_claude_work,
        keys=["ANTHROPIC_API_KEY"],
    ),
    Coder(
        name="codex",
        program=_adapter(CODEX, "codex-acp"),
        started_as="codex-acp",
        work=_codex_work,
        edits=1,
        keys=["SCRIPT_KEY"],
        files=_codex_files,
    ),
    Coder(
        name="copilot",
        program=COPILOT_CLI,
        started_as="copilot",
        work=_copilot_work,
        keys=["COPILOT_PROVIDER_BASE_URL", "COPILOT_PROVIDER_API_KEY", "COPILOT_MODEL", "COPILOT_OFFLINE"],
    ),
)
"""In the order of the table."""
