"""What it costs that a call's server is another member's: the same call at its owner, and at a member that forwards.

And what it costs a member to hear of the calls that another one makes.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
from measure import Figure, Series, call_echo, run_in_turns, run_paced
from processes import HERE, START_LIMIT_S, HubProcess, end_after, start_http_server, start_hub

import hubbub_client
from hubbub_frontend.certs import Authority

MORE_MS = 2.0
"""The most that a forwarded call should take more."""

SHARE = 0.15
"""The most of a call's processor time at its owner that hearing of it should take at another member."""

RATE, IN_FLIGHT = 100, 32
"""Calls a second of which another member hears, and calls at once."""

SETTLED_S = 0.3
"""Seconds after which all records of calls that have ended are everywhere."""


async def measure_forwarding(directory: Path, *, rounds: int, calls: int) -> Sequence[Figure]:
    """Unary calls at the owner and at the other member, in turns."""
    Authority.open(directory)
    async with AsyncExitStack() as open_:
        owner = await open_.enter_async_context(_start_member("owner", directory))
        other = await open_.enter_async_context(_start_member("other", directory, owner["forward"]))
        clients = [
            await open_.enter_async_context(hubbub_client.connect(each["grpc"], token="bench"))
            for each in (owner, other)
        ]
        figures: list[Figure] = []
        for in_flight in (1, IN_FLIGHT):
            works = [call_echo(client) for client in clients]
            at_owner, elsewhere = await run_in_turns(works, rounds=rounds, calls=calls, in_flight=in_flight)
            more = statistics.median(
                b.median_ms - a.median_ms for a, b in zip(at_owner.rounds, elsewhere.rounds, strict=True)
            )
            about = f"{in_flight} in flight"
            figures += [
                Figure(f"at the owner, {about}", at_owner.median_ms, "ms"),
                Figure(f"forwarded, {about}", elsewhere.median_ms, "ms"),
                Figure(f"more by the forward, {about}", more, "ms", MORE_MS if in_flight == 1 else None),
            ]
    return figures


async def measure_listening(directory: Path, *, calls: int) -> Sequence[Figure]:
    """Processor time of a member that makes calls, and of one that hears of them, over one PostgreSQL.

    Calls are made at a steady rate, and then with IN_FLIGHT at once. What both do at rest counts as well.
    """
    sys.path.append(str(HERE.parent))
    from tests.postgres import running

    authority = Authority.open(directory / "certs")
    key = directory / "vault.key"
    key.touch(mode=0o600)
    key.write_text("A" * 43 + "=\n")
    async with AsyncExitStack() as open_:
        database = open_.enter_context(running())
        light = await open_.enter_async_context(start_http_server("light_http.py"))
        members: list[HubProcess] = []
        for name, servers in (("owner", {"light": {"url": light}}), ("other", {})):
            (own := directory / f"member-{name}").mkdir()
            pair = authority.issue_member(name)
            fleet = {"NAME": name, "LISTEN": "127.0.0.1:0", "VAULT_KEY_FILE": key}
            fleet |= {"CA": authority.file, "CERT": pair.cert, "KEY": pair.key}
            environ = {f"HUBBUBD_FLEET__{setting}": str(value) for setting, value in fleet.items()}
            environ["HUBBUBD_STORE__URL"] = database.url
            members.append(await open_.enter_async_context(start_hub(servers, own, environ=environ)))
        owner, other = members
        work = call_echo(owner.client)
        figures: list[Figure] = []
        for about, made in (
            (f"{RATE} calls/s", lambda: run_paced(work, rate=RATE, calls=calls)),
            (f"{IN_FLIGHT} in flight", lambda: Series().round(work, calls, IN_FLIGHT)),
        ):
            await Series().round(work, max(calls // 4, 1), IN_FLIGHT)
            await anyio.sleep(SETTLED_S)
            before = owner.cpu_s(), other.cpu_s()
            await made()
            await anyio.sleep(SETTLED_S)
            here_s, there_s = (each.cpu_s() - cpu_s for each, cpu_s in zip(members, before, strict=True))
            figures += [
                Figure(f"processor of a call at its owner, {about}", here_s * 1000 / calls, "ms"),
                Figure(f"processor of hearing of it at the other, {about}", there_s * 1000 / calls, "ms"),
                Figure(f"hearing of a call beside making it, {about}", there_s / here_s, "x", SHARE),
            ]
    return figures


@asynccontextmanager
async def _start_member(name: str, directory: Path, *owner: str) -> AsyncGenerator[dict[str, str]]:
    """A member, and where it is reached."""
    command = [sys.executable, str(HERE / "member.py"), name, str(directory), *owner]
    process = await anyio.open_process(command, stdin=subprocess.DEVNULL, stderr=None)
    async with end_after(process):
        assert process.stdout is not None
        with anyio.fail_after(START_LIMIT_S):
            ready = json.loads(await process.stdout.receive())
        yield ready
