"""Hosts of the soak: they come, call, are asked, give up, come back, lose their streams, and go with or without a word.

Hosts over HTTP of both kinds of revisions, by the SDK's client and by hand; those behind bridges are `soak_bridges.py`.
"""

import json
import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2
import mcp
import mcp_types
from mcp.client.streamable_http import streamable_http_client
from processes import HubProcess

import hubbub_client
from hubbub_client import FailedPrecondition, Upsert

ASKS = {"old": "ask", "new": "greet"}
"""The servers that hosts use, one of each kind of revisions, and their tools that ask for a name."""

SETTINGS = {"mcp_listen": "127.0.0.1:0", "mcp_session_idle_s": 15}
"""Sessions that are left end soon."""
PROFILES = {"default": {"servers": list(ASKS)}, "quick": {"servers": list(ASKS), "hold_s": 0}}
"""The hosts of the profile `quick` do not wait for people."""

OLD, NEW = "2025-11-25", "2026-07-28"
ABLE: dict[str, Any] = {"elicitation": {"form": {}}}
PAUSE_S, THINKS_S, LIMIT_S = 4.0, (0.2, 2.5), 60.0
"""Between two visits of a kind, on average; how long people think; within which a response must come."""


def request(id_: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """A request in JSON-RPC."""
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def envelope(able: dict[str, Any]) -> dict[str, Any]:
    """What a host of 2026-07-28 says of itself in each request."""
    prefix = "io.modelcontextprotocol"
    about = {"name": "by-hand", "version": "1"}
    return {f"{prefix}/protocolVersion": NEW, f"{prefix}/clientInfo": about, f"{prefix}/clientCapabilities": able}


def handshake(able: dict[str, Any]) -> dict[str, Any]:
    """The params of `initialize` of a host of 2025-11-25."""
    return {"protocolVersion": OLD, "capabilities": able, "clientInfo": {"name": "by-hand", "version": "1"}}


def call_params(server: str, number: int) -> dict[str, Any]:
    """The params of a call that asks."""
    return {"name": ASKS[server], "arguments": {"number": number}}


async def think() -> None:
    """Waits for as long as a person thinks."""
    await anyio.sleep(random.uniform(*THINKS_S))


@dataclass
class Account:
    """What was done how often, and what went wrong."""

    done: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])

    def check(self, what: str, well: bool, why: object = "") -> None:
        """Counts what was done; if not `well`, it is noted as wrong, with the reason."""
        self.done[what] += 1
        if not well:
            self.wrong.append(f"{what} {str(why)[:200]}".rstrip())

    async def repeat_visit(self, what: str, pause_s: float, visit: Callable[[], Awaitable[None]]) -> None:
        """Makes a visit again and again, each within LIMIT_S, with pauses of `pause_s` on average."""
        while True:
            await anyio.sleep(random.uniform(0, 2 * pause_s))
            try:
                with anyio.fail_after(LIMIT_S):
                    await visit()
            except Exception as exc:  # whatever it is, the visit went wrong
                self.check(what, False, repr(exc))


async def person(hub: HubProcess, account: Account) -> None:
    """Sits at the inbox, thinks over each question of the servers that hosts use, and answers it."""

    async def answer(asked: Any) -> None:
        await think()
        try:
            await asked.accept({"name": "inbox"})
            account.done["questions of hosts answered in the inbox"] += 1
        except FailedPrecondition:
            account.done["questions of hosts answered before the inbox"] += 1

    async with (
        hubbub_client.connect(data_dir=hub.data_dir, name="person") as client,
        anyio.create_task_group() as answers,
        aclosing(client.inbox.watch(states=["open"])) as news,
    ):
        async for event in news:
            if isinstance(event, Upsert) and event.record.server in ASKS:
                answers.start_soon(answer, event.record)


@dataclass
class OverHttp:
    """Hosts at the hub's endpoint."""

    hub: HubProcess
    account: Account

    def start(self, tasks: anyio.abc.TaskGroup, pace: float) -> None:
        """Sets them all to work; `pace` is how many times as long the pauses are."""
        visits: dict[str, Callable[[], Awaitable[None]]] = {
            "hosts by the SDK": self._sdk,
            "tickets": self._ticket,
            "streams resumed": self._dropped,
            "sessions that vanished": self._vanishing,
            "hosts that gave up": self._giving_up,
            "hosts that came back": self._returning,
            "streams of changes": self._listening,
        }
        for what, visit in visits.items():
            tasks.start_soon(self.account.repeat_visit, what, PAUSE_S * pace, visit)

    @asynccontextmanager
    async def _http(self) -> AsyncGenerator[httpx2.AsyncClient]:
        headers = {"authorization": f"Bearer {self.hub.token}", "accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(headers=headers, timeout=LIMIT_S, trust_env=False) as http:
            yield http

    @asynccontextmanager
    async def _client(self, path: str, *, asked: bool) -> AsyncGenerator[mcp.Client]:
        """A client of the SDK at a path of the endpoint, of either kind of revisions; if `asked`, it answers forms."""

        async def answer(context: Any, params: Any) -> mcp_types.ElicitResult:
            await think()
            self.account.done["questions shown in hosts"] += 1
            return mcp_types.ElicitResult(action="accept", content={"name": "host"})

        async with self._http() as http:
            at = streamable_http_client(f"{self.hub.endpoint}{path}", http_client=http)
            mode: Any = random.choice(["legacy", NEW])
            async with mcp.Client(at, mode=mode, elicitation_callback=answer if asked else None) as client:
                yield client

    async def _sdk(self) -> None:
        """Lists, calls, is asked, and ends its session."""
        server = random.choice(list(ASKS))
        async with self._client("", asked=True) as client:
            await client.list_tools()
            for _ in range(2):
                response = await client.call_tool(f"{server}__echo", {"text": "x" * 100})
                self.account.check("calls of hosts", not response.is_error, response)
            response = await client.call_tool(f"{server}__{ASKS[server]}", {})
            self.account.check("hosts by the SDK", not response.is_error, response)

    async def _ticket(self) -> None:
        """Does not wait for people, and fetches the result later."""
        server = random.choice(list(ASKS))
        async with self._client("/p/quick", asked=False) as client:
            result = await client.call_tool(f"{server}__{ASKS[server]}", {})
            while result.meta is not None and (call_id := result.meta.get("hubbub/callId")):
                result = await client.call_tool("hubbub_result", {"call_id": call_id, "wait_s": 1})
            self.account.check("tickets", not result.is_error, result)

    # By hand, up to 2025-11-25

    async def _begin(self, http: httpx2.AsyncClient, server: str) -> tuple[str, dict[str, str]]:
        url = f"{self.hub.endpoint}/s/{server}"
        response = await http.post(url, json=request(0, "initialize", handshake({})))
        return url, {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": OLD}

    async def _dropped(self) -> None:
        """Loses the stream of a call, and takes it up where it was lost."""
        server = random.choice(list(ASKS))
        async with self._http() as http:
            url, session = await self._begin(http, server)
            message = request(1, "tools/call", call_params(server, 1))
            async with http.stream("POST", url, json=message, headers=session) as stream:
                last, response = await anext(events(stream))  # the first has nothing but its id
            if response is None:
                async with http.stream("GET", url, headers={**session, "last-event-id": last}) as stream:
                    async for _, response in events(stream):
                        if response and response.get("id") == 1:
                            break
                self.account.check("streams resumed", bool(response and "result" in response), response)
            await http.delete(url, headers=session)

    async def _vanishing(self) -> None:
        """Has a session and a stream of its own, asks something, and is not there any more."""
        async with self._http() as http:
            url, session = await self._begin(http, "old")
            with anyio.move_on_after(random.uniform(0.5, 2)):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._listen, http, url, session)
                    await http.post(url, json=request(1, "tools/call", call_params("old", 1)), headers=session)
        self.account.done["sessions that vanished"] += 1

    async def _listen(self, http: httpx2.AsyncClient, url: str, session: dict[str, str]) -> None:
        async with http.stream("GET", url, headers=session) as stream:
            async for _ in events(stream):
                pass

    # By hand, from 2026-07-28 on

    @asynccontextmanager
    async def _stateless(self, method: str, params: dict[str, Any], able: dict[str, Any]) -> AsyncGenerator[Any]:
        """The response to a request over a connection of its own."""
        headers = {"mcp-protocol-version": NEW, "mcp-method": method}
        if "name" in params:
            headers["mcp-name"] = params["name"]
        message = request(1, method, {**params, "_meta": envelope(able)})
        async with self._http() as http:
            url = f"{self.hub.endpoint}/s/new"
            async with http.stream("POST", url, json=message, headers=headers) as stream:
                yield stream

    async def _result(self, params: dict[str, Any]) -> dict[str, Any]:
        async with self._stateless("tools/call", params, ABLE) as stream:
            received = [message async for _, message in events(stream)]
        return received[-1]["result"]

    async def _returning(self) -> None:
        """Is asked, goes away, and comes back with the answer, perhaps after another was given."""
        params = call_params("new", 1)
        result = await self._result(params)
        while result.get("resultType") == "input_required":
            await think()
            answers = {key: {"action": "accept", "content": {"name": "back"}} for key in result["inputRequests"]}
            again = {"requestState": result["requestState"], "inputResponses": answers}
            result = await self._result({**params, **again})
        self.account.check("hosts that came back", not result.get("isError"), result)

    async def _giving_up(self) -> None:
        """Waits for people, and leaves; in every other case it is asked itself and does not come back."""
        able = random.choice([{}, ABLE])
        with anyio.move_on_after(random.uniform(0.1, 1)):
            async with self._stateless("tools/call", call_params("new", 2), able) as stream:
                async for _ in events(stream):
                    pass
        self.account.done["hosts that gave up"] += 1

    async def _listening(self) -> None:
        """Gets notices of changes for a moment."""
        params = {"notifications": {"toolsListChanged": True}}
        with anyio.move_on_after(random.uniform(0.5, 2)):
            async with self._stateless("subscriptions/listen", params, {}) as stream:
                async for _ in events(stream):
                    self.account.done["streams of changes"] += 1


async def events(response: httpx2.Response) -> AsyncGenerator[tuple[str, Any]]:
    """Yields the id and the message of each server-sent event; None for an event without a message.

    A response that is no stream is a single message, with an empty id.
    """
    if not response.headers["content-type"].startswith("text/event-stream"):
        yield "", json.loads(await response.aread())
        return
    id_ = ""
    async for line in response.aiter_lines():
        name, _, value = line.partition(":")
        if name == "id":
            id_ = value.strip()
        elif name == "data":
            yield id_, json.loads(value) if value.strip() else None
