"""A hub that is ended again and again under the load of two bridges; for `crash_hosts.py`.

One host has requests under way all the time, those that it sends while there is no hub among them. The other is asked
before each end, and answers the hub that comes after it.
"""

import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from .conftest import LIMIT_S, RunningHub, alive
from .crash_questions import SETTINGS, Seen
from .test_mcp_bridge import HELLO, Host, hosted

SCRIPTS = Path(__file__).parents[1] / "peers"
WAVE = 20
"""Requests under way when a hub is ended; half as many come while there is none."""
LATE_EVERY, LATE_S = 10, 3.0
"""How often a hub comes late, and by how much at most."""
FORMS = ("a", "b", "c")


@dataclass
class Restarts:
    """A hub of a server that works, and one that asks. Each notes what it gets in `journal`."""

    start: Callable[..., Any]
    url: str
    """Of the server that asks, which outlives the hubs."""
    journal: Path
    chance: random.Random
    seen: Seen = field(default_factory=Seen)

    async def run(self, count: int, away_s: float) -> None:
        """Restarts the hub so many times, and then once after so long that hosts have noticed it."""
        hub = await self._hub()
        async with hosted(hub.data_dir) as working, hosted(hub.data_dir, "--server", "mrtr") as asked:
            await working.shake()
            await asked.say("initialize", 0, **{**HELLO, "capabilities": {"elicitation": {}}})
            await asked.response(0)
            await asked.say("notifications/initialized")
            before = [_state(each.process.pid) for each in (working, asked)]
            for number in range(count):
                hub = await self._restart(hub, number, working, asked)
            if away_s:
                hub = await self._away(hub, away_s, working)
            after = [_state(each.process.pid) for each in (working, asked)]
            print(f"bridges: MiB and open files {before} at first, {after} at last", flush=True)
            for host in (working, asked):
                self.seen.check(await host.leave() == (0, b""), "a bridge has not ended well, or had more to say")
                self.seen.check(not alive(host.process.pid), "a bridge goes on")
        await hub.terminate()
        self._judge()

    async def _hub(self) -> RunningHub:
        env = {"JOURNAL": str(self.journal), "GO": str(SCRIPTS)}  # it goes on at once, as that is there
        works = {"command": sys.executable, "args": [str(SCRIPTS / "working_server.py")], "env": env}
        servers = {"plain": {**works, "max_in_flight": 16}, "mrtr": {"url": self.url}}
        return await self.start(servers, hub=SETTINGS)

    async def _restart(self, hub: RunningHub, number: int, working: Host, asked: Host) -> RunningHub:
        """Ends a hub under load; everything that was asked must have come out well once there is another."""
        await asked.say("tools/call", f"ask-{number}", name="three_forms", arguments={})
        questions = await _questions(asked)
        sent = [f"{number}-{each}" for each in range(WAVE + WAVE // 2)]
        for each in sent[:WAVE]:
            await working.say("tools/call", each, name="work", arguments={"text": each})
        lines = [await _next_response(working) for _ in range(self.chance.randrange(WAVE))]
        end = self.chance.choice(["terminate", "kill"])
        await getattr(hub, end)()
        self.seen.counts[f"hubs ended by {end}"] += 1
        for each in sent[WAVE:]:
            await working.say("tools/call", each, name="work", arguments={"text": each})
        if number % LATE_EVERY == LATE_EVERY - 1:
            await anyio.sleep(self.chance.uniform(LATE_S / 2, LATE_S))
            self.seen.counts["hubs that came late"] += 1
        hub = await self._hub()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._answer, asked, number, questions)
            while len(lines) < len(sent):
                lines.append(await _next_response(working))
        self._check_responses(sent, lines, killed=end == "kill")
        return hub

    def _check_responses(self, sent: list[str], lines: list[Any], *, killed: bool) -> None:
        """Each request has one response: its own text, or that the hub was restarted, if it was `killed`."""
        self.seen.check(Counter(line.get("id") for line in lines) == Counter(sent), f"responses: {lines}")
        # The bridge takes a moment to see that a hub was killed. What it has written until then may have arrived, for
        # all it knows; nothing after that is lost.
        failed = {line["id"] for line in lines if "result" not in line}
        unseen = sum(each in failed for each in sent[WAVE:])
        lost = {*sent[:WAVE], *sent[WAVE : WAVE + unseen]} if killed else set[str]()
        for line in lines:
            if "result" in line:
                self.seen.counts["results over a bridge"] += 1
                text = line["result"]["content"][0]["text"]
                self.seen.check(text == line["id"], f"{line['id']} got the result of {text}")
            else:
                reason = line.get("error", {}).get("data", {}).get("reason")
                self.seen.check(reason == "HUB_RESTARTED" and line["id"] in lost, f"{line}")
                self.seen.counts["requests that a killed hub may have carried out"] += 1

    async def _answer(self, host: Host, number: int, questions: dict[str, str]) -> None:
        """Answers whatever is asked, also what another hub has asked before, until the response is there."""
        given = {form: f"bridge {number} {form}" for form in FORMS}
        while True:
            for id_, form in questions.items():
                answer = {"action": "accept", "content": {"value": given[form]}}
                await _respond(host, id_, answer)
            line = await host.next()
            questions = {}
            if line.get("method") == "elicitation/create":
                questions = {line["id"]: line["params"]["message"][-2]}
            elif line.get("id") == f"ask-{number}":
                break
        got = json.loads(line["result"]["content"][0]["text"]) if "result" in line else line
        well = got == {form: {"action": "accept", "content": {"value": value}} for form, value in given.items()}
        self.seen.check(well, f"ask-{number}: {line}")
        self.seen.counts["questions answered over restarts"] += well

    async def _away(self, hub: RunningHub, away_s: float, working: Host) -> RunningHub:
        """Ends the hub for so long that requests fail; none hangs, and all is well once it is back."""
        await hub.terminate()
        sent = [f"away-{each}" for each in range(WAVE)]
        for each in sent:
            await working.say("tools/call", each, name="work", arguments={"text": each})
        with anyio.fail_after(LIMIT_S + away_s):
            lines = [await working.next() for _ in sent]
        self.seen.check({line.get("id") for line in lines} == set(sent), f"responses: {lines}")
        failed = [line for line in lines if line.get("error", {}).get("code") == -32000]
        self.seen.check(len(failed) == len(sent), f"without a hub: {lines}")
        self.seen.counts["requests whose answer was that there is no hub"] += len(failed)
        await anyio.sleep(max(away_s - 20, 0))  # they got their errors after 20 s
        hub = await self._hub()
        await working.say("tools/call", "back", name="work", arguments={"text": "back"})
        line = await working.response("back")
        self.seen.check("result" in line, f"after the hub was away: {line}")
        return hub

    def _judge(self) -> None:
        """No tool was called twice, and each answer arrived once."""
        notes = [json.loads(line) for line in self.journal.read_text().splitlines()]
        worked = Counter(note["answer"] for note in notes if note["server"] == "working")
        given = Counter(note["answer"]["content"]["value"] for note in notes if note["server"] == "mrtr")
        given = {value: count for value, count in given.items() if value.startswith("bridge ")}
        for what, counted in (("call", worked), ("answer", given)):
            self.seen.counts[f"{what}s that arrived"] = len(counted)
            twice = [each for each, count in counted.items() if count > 1]
            self.seen.check(not twice, f"{what}s that arrived twice: {twice}")


async def _next_response(host: Host) -> dict[str, Any]:
    """A hub whose servers connect after its hosts also says that their lists have changed."""
    while "id" not in (line := await host.next()):
        pass
    return line


async def _questions(host: Host) -> dict[str, str]:
    """Waits until the host is asked all forms; which of them each request's id is about."""
    found: dict[str, str] = {}
    while len(found) < len(FORMS):
        line = await host.next()
        if line.get("method") == "elicitation/create":
            found[line["id"]] = line["params"]["message"][-2]
    return found


async def _respond(host: Host, id_: str, result: dict[str, Any]) -> None:
    assert host.process.stdin is not None
    await host.process.stdin.send(json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}).encode() + b"\n")


def _state(pid: int) -> tuple[float, int]:
    """Resident memory in MiB, and open files."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1), len(list(Path(f"/proc/{pid}/fd").iterdir()))
