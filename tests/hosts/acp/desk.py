"""A hub with a coding agent behind it, the agent's model, and people before it."""

import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from subprocess import STDOUT
from typing import Any

import anyio
from playwright.async_api import Browser

from ...e2e.conftest import BIN, RunningHub, environment, running, toml
from ...web.conftest import Person, bridges
from ..real.dialects import Action, Say, Turn, Use
from ..real.model import Model
from ..real.places import Place
from ..real.programs import environment_of
from .coders import DONE, FILES, Coder

PLAIN = Path(__file__).parents[2] / "peers" / "plain_server.py"
SERVER = "coder"
PROFILE = "agents"
SAID = "All is done."
LAPTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
ENDED_S = 60
ENDS = ("completed", "failed", "cancelled")
POLL_S = 0.1


class Missed(Exception):
    """Something did not go as it should; the message says what."""


@dataclass
class WorkScript:
    """A model that makes some calls one after the other, and then says that all is done.

    Only a conversation with `prompt` gets them: agents also ask their models things of their own, with tools, later.
    """

    prompt: str = ""
    calls: list[Use] = field(default_factory=list[Use])
    heard: list[str] = field(default_factory=list[str])
    """What the calls of the turn returned so far."""
    missing: list[str] = field(default_factory=list[str])
    """Tools that the agent did not offer to its model."""

    async def act(self, turn: Turn) -> Action:
        """Return what the model does."""
        if (
            not turn.tools
            or self.prompt not in turn.body
            or (self.calls and not turn.find(self.calls[0].tool) and len(turn.tools) < 3)
        ):
            return Say("Work")  # a title for the session, or the like
        self.heard = [*turn.results]
        if not self.calls:
            return Say(SAID)
        call = self.calls.pop(0)
        name = turn.find(call.tool)
        if name is None:
            self.missing.append(call.tool)
            return Say(f"there is no {call.tool}")
        return Use(name, call.arguments)


@dataclass
class Desk:
    """One coding agent behind a hub, and a folder for it to work in."""

    directory: Path
    coder: Coder
    hub: RunningHub
    script: WorkScript
    place: Place
    browser: Browser
    stack: AsyncExitStack
    start_hub: Callable[[], Any]
    numbers: Iterator[int] = field(default_factory=count)

    @property
    def folder(self) -> Path:
        """Where the agent works."""
        return self.place.folder

    def begin(self, calls: Sequence[Use] | None = None) -> None:
        """Put the folder back as it was, and give the model its calls for a new prompt; without any, all the work."""
        for file in self.folder.iterdir():
            if file.is_file():
                file.unlink()
        for name, text in FILES.items():
            (self.folder / name).write_text(text)
        self.script.prompt = f"Do the work, for the {next(self.numbers)}. time."
        self.script.calls = [*(self.coder.work(self.folder) if calls is None else calls)]

    async def start(self) -> str:
        """Start a session with the prompt; the id of the call."""
        arguments = {"prompt": self.script.prompt, "cwd": str(self.folder)}
        return (await self.hub.client.start_tool(SERVER, "start", arguments)).id

    async def go_on(self, session: str) -> str:
        """Go on in a session; the id of the call."""
        return (
            await self.hub.client.start_tool(SERVER, "continue", {"session": session, "prompt": self.script.prompt})
        ).id

    async def find_question(self, call_id: str) -> Any:
        """Return what a call asks next; None once it has ended."""
        while True:
            asked = await self.hub.client.inbox.list(states=["open"], call_id=call_id)
            if asked:
                return asked[0]
            if (await self.hub.client.calls.get(call_id)).state in ENDS:
                return None
            await anyio.sleep(POLL_S)

    async def next_question(self, call_id: str) -> Any:
        """Return what a call asks next. Raises Missed when it ends without."""
        request = await self.find_question(call_id)
        if request is None:
            raise Missed(f"it asked nothing, and ended: {self.describe(await self.hub.call(call_id))}")
        return request

    async def choose(self, request: Any, kind: str) -> None:
        """Answer with the agent's option of a kind, and wait until the agent has it."""
        await request.accept({"decision": find_choice(request, kind)})
        await self.hub.request(request.id, delivery="delivered")

    async def find_end(self, call_id: str) -> dict[str, Any]:
        """Return the structured result of a call. Raises Missed if it failed, or does not end."""
        with anyio.move_on_after(ENDED_S):
            call = await self.hub.call(call_id)
            if call.state != "completed" or call.result.get("isError"):
                raise Missed(self.describe(call))
            return call.result["structuredContent"]
        raise Missed(f"the call did not end within {ENDED_S} s")

    def describe(self, call: Any) -> str:
        """Return what came of a call, for people."""
        return " ".join(json.dumps(call.result or call.to_json(), ensure_ascii=False).split())[:600]

    async def list_sessions(self) -> list[dict[str, Any]]:
        """Return the states of all sessions."""
        read = await self.hub.client.read_resource(SERVER, "acp://sessions")
        return json.loads(read["contents"][0]["text"])

    def check_work(self, wanted: dict[str, str | None] | None = None) -> None:
        """Compare the folder with what should be there. Raises Missed."""
        for name, text in (wanted or DONE).items():
            file = self.folder / name
            found = file.read_text() if file.exists() else None
            if found != text:
                raise Missed(f"{name} has {found!r}; its model had no {self.script.missing}, heard {self.script.heard}")

    def check_result(self, result: dict[str, Any], stop: str = "end_turn") -> None:
        """Check what the call returned. Raises Missed."""
        if result["stopReason"] != stop:
            raise Missed(f"the turn ended with {result['stopReason']!r}")
        if stop == "end_turn" and SAID not in result["text"]:
            raise Missed(f"the agent's text is {result['text']!r}")

    @asynccontextmanager
    async def visited(self, size: dict[str, int]) -> AsyncGenerator[Person]:
        """Somebody at a browser of this size, before the hub's page. Raises Missed for what a page must never do."""
        async with bridges() as start_bridge:
            bridge = await start_bridge(self.hub)
            is_phone = size == PHONE
            context = await self.browser.new_context(viewport=size, has_touch=is_phone, is_mobile=is_phone)  # pyright: ignore
            context.set_default_timeout(30_000)
            person = Person(context, await context.new_page(), bridge.origin)
            person.watch()
            try:
                await person.enter(await bridge.new_link(), "Ada")
                yield person
            finally:
                await context.close()
            if person.troubles:
                raise Missed(f"the page: {person.troubles}")

    async def take_picture(self, person: Person, name: str) -> None:
        """Keep a picture of what somebody sees."""
        await person.page.screenshot(path=self.directory / f"{name}.png", full_page=True)

    async def restart(self, way: str) -> None:
        """End the hub by `terminate` or `kill`, and start it again."""
        await getattr(self.hub, way)()
        self.hub = await self.start_hub()


def _tables(directory: Path) -> dict[str, Any]:
    env = {"JOURNAL": str(directory / "journal.jsonl")}
    plain = {"command": sys.executable, "args": [str(PLAIN)], "env": env, "confirm": "writes"}
    profile = {"servers": ["plain"], "questions": {"approval": "inbox"}}
    return {
        "hub": {"mcp_listen": "127.0.0.1:0", "shutdown_grace_s": 1},
        "servers": {"plain": plain},
        "mcp": {"profiles": {PROFILE: profile}},
    }


@asynccontextmanager
async def opened(
    directory: Path, coder: Coder, peers: Path, browser: Browser, *, logged_in: bool = True
) -> AsyncGenerator[Desk]:
    """Start a hub, and put a coding agent behind it by `hubbub servers add --agent`."""
    home, folder, programs = directory / "home", directory / "work", directory / "bin"
    home.mkdir(parents=True)
    folder.mkdir()
    coder.install(programs, peers)
    config = directory / "hub.toml"
    config.write_text(toml(_tables(directory)))
    arguments = ["--config", str(config), "--data-dir", str(directory / "data"), "--listen", "127.0.0.1:0"]
    script = WorkScript()
    async with AsyncExitStack() as stack:
        log = stack.enter_context((directory / "hub.log").open("ab"))

        async def start_hub() -> RunningHub:
            hub = await stack.enter_async_context(running(arguments, stderr=log))
            await hub.connected("plain")
            return hub

        url = await stack.enter_async_context(Model(script.act).serving())
        place = Place(home, folder, url)
        hub = await start_hub()
        desk = Desk(directory, coder, hub, script, place, browser, stack, start_hub)
        coder.prepare(place, logged_in=logged_in)
        await _add(desk, peers, programs, logged_in=logged_in)
        yield desk


async def _add(desk: Desk, peers: Path, programs: Path, *, logged_in: bool) -> None:
    env = environment_of(desk.coder.program, desk.place, peers)
    if not logged_in:
        env = {name: value for name, value in env.items() if name not in desk.coder.keys}
    given = [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
    words = ["servers", "add", SERVER, "--agent", desk.coder.name, "--mcp", PROFILE, *given, "--wait"]
    command = [str(BIN / "hubbub"), "--data-dir", str(desk.hub.data_dir), *words]
    found = {**environment(), "PATH": f"{programs}:{os.environ['PATH']}"}
    added = await anyio.run_process(command, check=False, env=found, stderr=STDOUT)
    if added.returncode:
        raise Missed(f"hubbub servers add --agent {desk.coder.name}: {added.stdout.decode()}")


def find_choice(request: Any, kind: str) -> str:
    """Return the id of the agent's option of a kind. Raises Missed."""
    options = request.request["_meta"]["acp/toolCall"]["options"]
    found = next((each["optionId"] for each in options if each["kind"] == kind), None)
    if found is None:
        raise Missed(f"no option is of the kind {kind}: {options}")
    return found


def name_choice(request: Any, kind: str) -> re.Pattern[str]:
    """Return what the button of the agent's option says."""
    options = request.request["_meta"]["acp/toolCall"]["options"]
    name = next(each["name"] for each in options if each["kind"] == kind)
    return re.compile(rf"^{re.escape(name)}\b")
