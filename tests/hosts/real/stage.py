"""One run of a program: a hub, the program's home with the hub in it, its model, people, and what came of it."""

import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, STDOUT
from typing import Any

import anyio

from ...e2e.conftest import BIN, running, toml
from .cases import NOTES, Case, of_claude_code, of_servers
from .model import Model
from .places import Place
from .play import Play
from .programs import ASKED_FIRST, Program, command_of, environment_of, install, prepare

OWN = ("prompt tool", "hook")
"""The ways in which Claude Code asks about its own tools."""
PLAIN = Path(__file__).parents[2] / "peers" / "plain_server.py"
LIMIT_S = 120
HOLD_S = 8
"""Within which people answer what they answer in time; so long it takes until the model is asked to come back."""
PROFILES: dict[str, Any] = {
    "tools": {},
    "both": {"questions": {"approval": "both"}},
    "host": {"questions": {"approval": "host"}},
}
PROMPT = "Call the tools."


@dataclass(frozen=True, slots=True)
class Row:
    """What came of a case; `wrong` is empty where all is as it should be."""

    program: str
    over: str
    way: str
    case: str
    heard: str
    wrong: str

    def line(self) -> str:
        """The row of a table."""
        judged = f"WRONG: {self.wrong}" if self.wrong else "ok"
        return (
            f"{self.program:26} {self.over:8}{self.way:13}{self.case:18}{judged:4}{' '.join(self.heard.split())[:100]}"
        )


HEAD = Row("host", "over", "by", "case", "what the model heard", "").line().replace("ok  ", "    ")


@dataclass
class Stage:
    """A directory for one program, over HTTP or over the bridge."""

    directory: Path
    program: Program
    peers: Path
    over: str

    async def run(self) -> list[Row]:
        """Run the program to its end; a row for each case."""
        home, folder = self.directory / "home", self.directory / "work"
        home.mkdir(parents=True)
        folder.mkdir()
        (folder / "notes.txt").write_text(NOTES)
        cases = of_claude_code(str(folder)) if self.program.way in OWN else of_servers()
        async with AsyncExitStack() as stack:
            hub = await stack.enter_async_context(running(self._arguments(), stderr=self._open("hub.log", stack)))
            await hub.connected("plain")
            play = Play(hub, cases, host_is_asked=self.program.way in ASKED_FIRST)
            place = Place(home, folder, await stack.enter_async_context(Model(play.act).serving()))
            prepare(self.program, place)
            profile = "tools" if self.program.way in OWN else self.program.way
            bridge = [str(BIN / "hubbub"), "--data-dir", str(hub.data_dir)]
            await install(self.program, place, self.peers, bridge, ("--profile", profile), over=self.over)
            people = await stack.enter_async_context(anyio.create_task_group())
            people.start_soon(play.decide)
            ended = await self._run(place, self._open("program.log", stack))
            people.cancel_scope.cancel()
        return self._judge(play, ended)

    async def _run(self, place: Place, log: Any) -> str:
        """Run the program to its end; what was wrong with that."""
        command = [*command_of(self.program, self.peers), *self.program.words(place, PROMPT)]
        env = environment_of(self.program, place, self.peers)
        with anyio.move_on_after(LIMIT_S):
            ended = await anyio.run_process(
                command, check=False, cwd=place.folder, env=env, stdin=DEVNULL, stdout=log, stderr=STDOUT
            )
            return f"exit status {ended.returncode}" if ended.returncode else ""
        return f"it did not end within {LIMIT_S} s"

    def _judge(self, play: Play, ended: str) -> list[Row]:
        journal = self.directory / "journal.jsonl"
        lines = journal.read_text().splitlines() if journal.exists() else []
        received = [json.loads(line)["answer"] for line in lines]
        rows: list[Row] = []
        for case in play.cases:
            wrong, heard = self._find_fault(play, case, received) or ended, play.heard.get(case.name, "")
            rows.append(self._row(play, case.name, heard if wrong else heard[heard.index(case.hears) :], wrong))
        if play.host_is_asked:
            wrong = "" if play.by_itself else "the program was not asked"
            rows.append(self._row(play, "not counted", play.by_itself, wrong))
        extra = [each for each in received if each not in [case.sent for case in play.cases]]
        if extra or play.unexpected:
            wrong = f"the server also received {extra}; people were also asked {play.unexpected}"
            rows.append(self._row(play, "nothing else", "", wrong))
        return rows

    def _row(self, play: Play, case: str, heard: str, wrong: str) -> Row:
        return Row(play.host or self.program.name, self.over, self.program.way, case, heard, wrong)

    def _find_fault(self, play: Play, case: Case, received: Sequence[Any]) -> str:
        heard = play.heard.get(case.name)
        if heard is None:
            return f"its model had no {case.tool}" if case.tool in play.missing else "it never came to this"
        if case.late and case.late not in play.at_first[case.name]:
            return "the model was not told to come back"
        if case.hears not in heard:
            return f"the model should have heard {case.hears!r}"
        if case.sent is not None and received.count(case.sent) != 1:
            return f"the server received {received}"
        return self._find_fault_of_file(*case.file) if case.file else ""

    def _find_fault_of_file(self, name: str, wanted: str | None) -> str:
        file = self.directory / "work" / name
        found = file.read_text() if file.exists() else None
        return "" if found == wanted else f"{name} has {found!r}"

    def _arguments(self) -> list[str]:
        env = {"JOURNAL": str(self.directory / "journal.jsonl")}
        server = {"command": sys.executable, "args": [str(PLAIN)], "env": env, "confirm": "writes"}
        tables: dict[str, Any] = {
            "hub": {"mcp_listen": "127.0.0.1:0", "shutdown_grace_s": 1},
            "servers": {"plain": server},
            "mcp": {"profiles": {name: {"hold_s": HOLD_S, "people": True, **each} for name, each in PROFILES.items()}},
        }
        config = self.directory / "hub.toml"
        config.write_text(toml(tables))
        return ["--config", str(config), "--data-dir", str(self.directory / "data"), "--listen", "127.0.0.1:0"]

    def _open(self, name: str, stack: AsyncExitStack) -> Any:
        return stack.enter_context((self.directory / name).open("ab"))
