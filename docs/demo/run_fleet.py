"""Three hubs over one PostgreSQL, on this machine: a call at one, its question at another, and the third is killed.

    run_fleet.py [--once] [--dir DIR]

`--once` ends when all of it was shown. What the members keep is in DIR, .hubbub-fleet unless it is named, and is
made again each time.
"""

import argparse
import asyncio
import base64
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from hubbub_client import Grant, HubbubError, PendingRequest, Upsert, WatchEvent, connect
from hubbub_local.daemon import find_hub_pid
from hubbub_shared.legible import clean

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from tests.database import NoDatabase, Postgres, running  # noqa: E402 - found from ROOT only

BIN = Path(sys.executable).parent
MEMBERS = ("a", "b", "c")
SERVER, TOOL, CALL = "kitchen", "order_lunch", "lunch"
DATABASE = "database"
MARK = "made-by-run-fleet"

BEAT_S = 3.0
"""Seconds between signs of life while something takes its time."""

LIMIT_S = 60.0
"""Seconds for one step; it takes a few."""

LOOK_S = 0.05
"""Seconds between looks whether something is so."""

GRACE_S = 20.0
"""Seconds for a process to end when it is asked to."""

MEMBER = """
[hub]
listen = "127.0.0.1:{port}"
data_dir = {data}

[store]
url = "{database}"

[fleet]
name = "{name}"
listen = "127.0.0.1:0"
ca = {ca}
cert = {cert}
key = {key}
vault_key_file = {vault}

[servers.{server}]
url = "http://127.0.0.1:{server_port}/mcp"
"""

NEXT = """
The fleet goes on. Its members serve their APIs at {addresses}.
In a second terminal, in this folder, type

    {client} call {server} {tool}

and answer at another member, or in a browser:

    {second} inbox watch
    {second} web

All members at once, whichever of them is there:

    export HUBBUB_ADDRESS={addresses} HUBBUB_TOKEN=$(cat {token})
    {program} servers list

Who is a member, and who has which server:

    {client} fleet status

Ctrl-C here ends all of it."""


class Failed(Exception):
    """The play cannot go on; the text says why."""


class Story:
    """Says what happens, with the time since the beginning."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:5.1f} s  {clean(text)}", flush=True)

    def plain(self, text: str) -> None:
        print(clean(text), flush=True)

    @asynccontextmanager
    async def during(self, what: str) -> AsyncGenerator[None]:
        """Say now and then what is waited for. Raises Failed when it takes too long."""

        async def report() -> None:
            while True:
                await asyncio.sleep(BEAT_S)
                self.say(f"  ... {what}")

        reporting = asyncio.create_task(report())
        try:
            async with asyncio.timeout(LIMIT_S):
                yield
        except TimeoutError:
            raise Failed(f"{what}: not done within {LIMIT_S:.0f} s") from None
        finally:
            reporting.cancel()


@dataclass
class Child:
    """A process that we started, and the file with what it says."""

    process: Process
    log: Path

    async def end(self) -> None:
        """End it in order; at once if it does not."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), GRACE_S)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()

    def log_tail(self) -> str:
        """Return the end of what it said."""
        return self.log.read_text(errors="replace").strip()[-400:]


@dataclass
class Play:
    """The members, what they need, and what is done with them."""

    directory: Path
    story: Story
    ports: dict[str, int]
    children: list[Child] = field(default_factory=list[Child])
    members: dict[str, Child] = field(default_factory=dict[str, Child])

    def data_dir(self, member: str) -> Path:
        """Return a member's data directory."""
        return self.directory / member

    async def start(self, name: str, *command: str, env: dict[str, str] | None = None) -> Child:
        """Start a process whose log is NAME.log."""
        log = self.directory / f"{name}.log"
        with log.open("ab") as output:
            # In a session of its own, so that Ctrl-C ends it once: from here.
            process = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=output, stderr=output, start_new_session=True, env=env, cwd=ROOT
            )
        child = Child(process, log)
        self.children.append(child)
        return child

    async def end(self) -> None:
        """End all that was started."""
        await asyncio.gather(*(child.end() for child in self.children))

    async def issue_certificates(self) -> None:
        """Make an authority, a certificate for each member, and the key of their vault."""
        certs = self.directory / "certs"
        await run(BIN / "hubbub", "certs", "member", certs, *MEMBERS)
        key = certs / "vault.key"
        with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(base64.b64encode(secrets.token_bytes(32)) + b"\n")

    def configure(self, member: str, database: Postgres) -> None:
        """Write the configuration of a member."""
        certs = self.directory / "certs"
        text = MEMBER.format(
            name=member,
            port=self.ports[member],
            data=json.dumps(str(self.data_dir(member))),
            database=database.url,
            ca=json.dumps(str(certs / "ca.pem")),
            cert=json.dumps(str(certs / f"member-{member}.pem")),
            key=json.dumps(str(certs / f"member-{member}-key.pem")),
            vault=json.dumps(str(certs / "vault.key")),
            server=SERVER,
            server_port=self.ports[SERVER],
        )
        (self.directory / f"{member}.toml").write_text(text)

    async def join(self, member: str) -> None:
        """Start a member, and wait until it serves. Raises Failed."""
        words = (str(BIN / "hubbubd"), "--config", str(self.directory / f"{member}.toml"))
        child = self.members[member] = await self.start(member, *words)
        await self.wait_until_listening(member, child)

    async def wait_until_listening(self, name: str, child: Child) -> None:
        """Return once a process listens on its port. Raises Failed if it ends."""
        while not await is_listening(self.ports[name]):
            if child.process.returncode is not None:
                raise Failed(f"{name} has ended: {child.log_tail()}")
            await asyncio.sleep(LOOK_S)


async def run(*command: str | Path) -> None:
    """Run a command to its end. Raises Failed."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd=ROOT
    )
    _, errors = await process.communicate()
    if process.returncode:
        raise Failed(f"{command[0]}: {errors.decode(errors='replace').strip()}")


async def is_listening(port: int) -> bool:
    """Return whether somebody listens there."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def find_free_ports() -> dict[str, int]:
    """Return a port for each that listens, where nobody does."""
    sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in (*MEMBERS, SERVER, DATABASE)}
    ports = {name: each.getsockname()[1] for name, each in sockets.items()}
    for each in sockets.values():
        each.close()
    return ports


async def show_fleet(play: Play, database: Postgres) -> None:
    """Show what a fleet is for. Raises Failed and HubbubError."""
    story = play.story
    story.say("Certificates for the members, and a key for the secrets that they share.")
    async with story.during("making them"):
        await play.issue_certificates()
    story.say(f"An MCP server, `{SERVER}`, which asks people: its tool {TOOL} wants to know what to order.")
    env = os.environ | {"PORT": str(play.ports[SERVER])}
    kitchen = await play.start(SERVER, sys.executable, str(ROOT / "docs/demo/kitchen.py"), env=env)
    async with story.during(f"waiting for {SERVER}"):
        await play.wait_until_listening(SERVER, kitchen)

    story.say("Three hubs, each with the same configuration but for its name: members a, b and c.")
    for member in MEMBERS:
        play.configure(member, database)
    async with story.during("the members start"):
        await asyncio.gather(*map(play.join, MEMBERS))
    story.say("They serve. Each server has one owner among them, which connects it.")
    async with story.during("waiting for an owner"):
        owner = await wait_for_owner(play.data_dir(MEMBERS[0]))
        await wait_until_connected(play.data_dir(owner))
    here, elsewhere = (member for member in MEMBERS if member != owner)
    story.say(f"Member {owner} owns `{SERVER}`, and is connected to it.")

    async with connect(data_dir=play.data_dir(here)) as caller, connect(data_dir=play.data_dir(elsewhere)) as person:
        call = await caller.start_tool(SERVER, TOOL, call_id=CALL)
        story.say(f"Member {here} is asked to call {TOOL}. It forwards the call to {owner}.")
        async with story.during("waiting for the question"):
            question = await wait_for_question(person.inbox.watch(states=["open"]))
        story.say(f"At member {elsewhere} the question is in the inbox: {question.request['message']}")

        play.members[owner].process.send_signal(signal.SIGKILL)
        await play.members[owner].process.wait()
        killed = time.monotonic()
        story.say(f"kill -9 of member {owner}, which had the call and the server.")
        await person.inbox.answer(question.id, accept={"dish": "soup", "portions": 2})
        story.say(f"Member {elsewhere} takes the answer all the same: it is kept, and the only one.")
        async with story.during(f"the others give {owner} the time of its lease, then one of them takes over"):
            result = await call.result()
        took_s = time.monotonic() - killed
        story.say(f"The call has completed, {took_s:.1f} s after the kill: {result.text}")
        story.say(f"Member {await wait_for_owner(play.data_dir(here))} owns `{SERVER}` now, and has sent the answer.")
        token = await person.tokens.create("demo", [Grant(role="admin")])
        (play.directory / "token").touch(0o600)
        (play.directory / "token").write_text(f"{token.secret}\n")

    async with story.during(f"member {owner} starts again"):
        await play.join(owner)
    story.say(f"Member {owner} is back, as a new life of the same member.")


async def wait_for_owner(data: Path) -> str:
    """Return the member that has the server, as another one sees it, once there is one."""
    async with connect(data_dir=data) as hub:
        while True:
            if (owner := (await hub.fleet.status()).owner(SERVER)) is not None:
                return owner
            await asyncio.sleep(LOOK_S)


async def wait_until_connected(data: Path) -> None:
    """Return once a member has its server connected."""
    async with connect(data_dir=data) as hub, aclosing(hub.servers.watch()) as events:
        async for event in events:
            if isinstance(event, Upsert) and event.record.name == SERVER and event.record.state == "connected":
                return


async def wait_for_question(watch: AsyncGenerator[WatchEvent[PendingRequest]]) -> PendingRequest:
    """Return the first question of a watch."""
    async with aclosing(watch) as events:
        async for event in events:
            if isinstance(event, Upsert):
                return event.record
    raise Failed("the inbox is not watched any more")


def format_advice(play: Play) -> str:
    """Return what can be typed while the fleet runs."""
    program = os.path.relpath(BIN / "hubbub", ROOT)
    folder = os.path.relpath(play.directory, ROOT)
    addresses = ",".join(f"127.0.0.1:{play.ports[member]}" for member in MEMBERS)
    client, second = (f"{program} --data-dir {folder}/{member}" for member in MEMBERS[:2])
    words = {"server": SERVER, "tool": TOOL, "token": f"{folder}/token", "program": program}
    return NEXT.format(addresses=addresses, client=client, second=second, **words)


def empty_directory(directory: Path) -> Path:
    """Return the directory, with nothing of an earlier run in it. Raises Failed."""
    if directory.exists() and any(directory.iterdir()) and not (directory / MARK).is_file():
        raise Failed(f"{directory} is not of this program: name another one with --dir")
    running_now = [member for member in MEMBERS if (directory / member).is_dir() and find_hub_pid(directory / member)]
    if running_now:
        raise Failed(f"members run in {directory} already; end them first, or name another directory with --dir")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700, parents=True)
    (directory / MARK).touch()
    return directory


async def start_database(stack: ExitStack, story: Story) -> Postgres:
    """Start PostgreSQL; the stack ends it, also if this is cancelled meanwhile. Raises NoDatabase and Failed."""
    starting = asyncio.ensure_future(asyncio.to_thread(stack.enter_context, running(find_free_ports()[DATABASE])))
    try:
        async with story.during("PostgreSQL starts"):
            return await asyncio.shield(starting)
    except BaseException:
        await asyncio.wait([starting])
        raise


async def play(directory: Path, database: Postgres, story: Story, *, once: bool) -> None:
    """Show it all, then go on until interrupted, unless it is to be shown only once. Raises Failed, HubbubError."""
    fleet = Play(directory, story, find_free_ports())
    try:
        await show_fleet(fleet, database)
        if not once:
            story.plain(format_advice(fleet))
            await asyncio.Event().wait()
    finally:
        story.say("Ending the members and the server.")
        await fleet.end()


async def main() -> int:
    """Run the demo; return its exit status."""
    parser = argparse.ArgumentParser(usage="%(prog)s [--once] [--dir DIR]")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--dir", type=Path, default=ROOT / ".hubbub-fleet")
    options = parser.parse_args()
    task = asyncio.current_task()
    assert task is not None
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, task.cancel)
    story = Story()
    try:
        directory = empty_directory(options.dir.absolute())
        story.say("PostgreSQL, which keeps what all of them know.")
        with ExitStack() as stack:
            database = await start_database(stack, story)
            await play(directory, database, story, once=options.once)
    except (Failed, NoDatabase, HubbubError) as problem:
        story.plain(f"The demo cannot go on: {problem}")
        return 1
    except asyncio.CancelledError:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
