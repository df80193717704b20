"""What a server says arrives at a host member for member; in a profile, names and URIs are all that differs.

Server and host are real and of either kind of revisions. The server says what it is asked to, letter by letter.
"""

import json
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import pytest

from ..fuzz.chance import Chance
from .conftest import LIMIT_S, RunningHub
from .test_mcp_endpoint import BEFORE, NOW, Endpoint, messages

SERVERS = {"before": BEFORE, "now": NOW}
OF_2026 = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
AT_ONCE = 8
ENTRIES = 20
"""Entries of one list."""


@pytest.fixture(scope="module")
async def mirrors(start_shared_hub: Callable[..., Awaitable[RunningHub]], peer_scripts: Path) -> RunningHub:
    """A hub with a server of each kind of revisions."""
    script = str(peer_scripts / "mirror_server.py")
    servers: dict[str, dict[str, Any]] = {
        name: {
            "command": sys.executable,
            "args": [script, *(["--stateless"] if revision == NOW else [])],
            "protocol": revision,
            "max_in_flight": AT_ONCE,
        }
        for name, revision in SERVERS.items()
    }
    hub = await start_shared_hub(servers, hub={"mcp_listen": "127.0.0.1:0"}, connected=True)
    for name in servers:
        await hub.client.catalog.refresh(name)
    return hub


class Words:
    """Names, URIs and JSON values, the same for a seed."""

    def __init__(self, *seed: object) -> None:
        self.chance = Chance("fidelity", *seed)

    def value(self, depth: int = 3) -> Any:
        """Any JSON value."""
        kind = self.chance.upto(3) if depth else 0
        if kind == 1:
            return [self.value(depth - 1) for _ in range(self.chance.upto(3))]
        if kind == 2:
            return self.members(depth - 1)
        return self.chance.scalar()

    def members(self, depth: int = 3) -> dict[str, Any]:
        """Members that no revision knows."""
        return {f"x-{self.chance.text()}": self.value(depth) for _ in range(self.chance.upto(3))}

    def uri(self) -> str:
        """A URI of the server's own."""
        scheme = self.chance.of(("x", "x", "ui", "UI", "skill"))
        return f"{scheme}://{self.chance.upto(99)}/{self.chance.of(('a', 'a%20b', 'é', '{}', '?q=1#f'))}"

    def content(self) -> dict[str, Any]:
        """A piece of content, in which there may be a URI."""
        own = self.members()
        resource = {"uri": self.uri(), "text": self.chance.text()} | self.members()
        return own | self.chance.of(
            (
                {"type": "text", "text": self.chance.text(), "annotations": {"priority": 0.5}},
                {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                {"type": "resource_link", "uri": self.uri(), "name": "n"},
                {"type": "resource", "resource": resource},
            )
        )

    def result(self) -> dict[str, Any]:
        """A result of a tool, as before 2026-07-28."""
        said: dict[str, Any] = {"content": [self.content() for _ in range(self.chance.upto(4))], **self.members()}
        for name, make in {"structuredContent": self.members, "_meta": self.members}.items():
            if self.chance.one_in(2):
                said[name] = make()
        if self.chance.one_in(3):
            said["isError"] = self.chance.of((True, False))
        return said

    def entry(self, member: str, number: int) -> dict[str, Any]:
        """An entry of a list."""
        own = self.members() | {"description": self.chance.text(), "_meta": self.members()}
        if member == "resources":
            return own | {"uri": f"{self.uri()}{number}", "name": self.chance.text()}
        schema = {"type": "object", "properties": {"a": {"type": "number", "maximum": 1e308, "x": self.value()}}}
        return own | {"name": f"t{number}.{self.chance.upto(9)}", "title": "T", "inputSchema": schema}


def spelled(value: object) -> str:
    """A value so that two are equal if and only if they are the same JSON: 1 is not 1.0."""
    return json.dumps(value, sort_keys=True)


def stripped(value: Any, server: str) -> Any:
    """A value with what says that it is of a server taken from all its texts."""
    if isinstance(value, str):
        own = value.removeprefix(f"hubbub://s/{server}/")
        return re.sub(rf"^(?:(ui://){server}\+|(skill://){server}/)", r"\1\2", own, flags=re.IGNORECASE)
    if isinstance(value, list):
        return [stripped(each, server) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: stripped(each, server) for key, each in cast("dict[str, Any]", value).items()}
    return value


def without_lifetime(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result without what only one kind of revisions has of it."""
    return {name: value for name, value in result.items() if name not in OF_2026}


def as_its_server_has_it(server: str, entry: dict[str, Any]) -> dict[str, Any] | None:
    """An entry of a profile's list with its own name and URI; None if it is of another server."""
    if "uri" in entry:
        own = stripped(entry, server)
        return own if own["uri"] != entry["uri"] else None
    meta = dict(entry.get("_meta", {}))
    if meta.pop("hubbub/server", None) != server:
        return None
    return {**entry, "name": meta.pop("hubbub/name"), "_meta": meta}


class Hosts:
    """Hosts of both kinds of revisions, at the endpoint of one server or of a profile."""

    def __init__(self, hub: RunningHub, http: httpx2.AsyncClient) -> None:
        self.hub = hub
        self._http = http
        self._headers = {"authorization": f"Bearer {hub.token}"}
        self._sessions: dict[str, Endpoint] = {}

    def another(self) -> "Hosts":
        """As many hosts, with sessions of their own."""
        return Hosts(self.hub, self._http)

    async def ask(self, revision: str, path: str, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a request."""
        endpoint = Endpoint(f"{self.hub.ready['mcp']}{path}", self._http, self._headers)
        if revision == NOW:
            response = await endpoint.now(method, params)
        else:
            if path not in self._sessions:
                self._sessions[path] = await endpoint.session()
            response = await self._sessions[path].before(method, params)
        (message,) = messages(response)
        return message["result"]


async def results_arrive(hosts: Hosts, count: int) -> None:
    """Fails unless so many results arrive as they were sent, over all ways that there are."""
    ways = list(product((BEFORE, NOW), SERVERS, (True, False)))
    numbers = iter(range(count))

    async def some(session: Hosts) -> None:
        for number in numbers:
            revision, server, transparent = ways[number % len(ways)]
            sent = Words(number).result()
            said = json.dumps(sent | ({"resultType": "complete"} if server == "now" else {}), ensure_ascii=True)
            name, path = ("mirror", f"/s/{server}") if transparent else (f"{server}__mirror", "")
            got = await session.ask(revision, path, "tools/call", {"name": name, "arguments": {"result": said}})
            assert ("resultType" in got) == (revision == NOW)
            if not transparent:
                got = stripped(got, server)
            assert spelled(without_lifetime(got)) == spelled(sent), number

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(some, hosts.another())


async def lists_arrive(hosts: Hosts, count: int) -> None:
    """Fails unless so many lists arrive as they were sent, over all ways that there are."""
    for number in range(count):
        words = Words("list", number)
        server = ("before", "now")[number % 2]
        lifetime = OF_2026 if server == "now" else {}
        sent = {member: [words.entry(member, each) for each in range(ENTRIES)] for member in ("tools", "resources")}
        called = [{"name": "offer", "title": "T", "inputSchema": {"type": "object"}, "_meta": {}}]
        given = {"tools": [*sent["tools"], *called], "resources": sent["resources"]}
        lists = {f"{member}/list": json.dumps(lifetime | {member: given[member]}) for member in given}
        await hosts.ask(NOW, f"/s/{server}", "tools/call", {"name": "offer", "arguments": {"lists": lists}})
        await hosts.hub.client.catalog.refresh(server)
        for revision, member in product((BEFORE, NOW), given):
            got = (await hosts.ask(revision, f"/s/{server}", f"{member}/list", {}))[member]
            assert spelled(got) == spelled(given[member]), (number, revision)
            merged = (await hosts.ask(revision, "", f"{member}/list", {}))[member]
            found = [own for entry in merged if (own := as_its_server_has_it(server, entry)) is not None]
            assert spelled(found) == spelled(given[member]), (number, revision)


@pytest.fixture
async def hosts(mirrors: RunningHub) -> Any:
    async with httpx2.AsyncClient(trust_env=False, timeout=LIMIT_S) as http:
        yield Hosts(mirrors, http)


async def test_results_arrive_as_they_were_sent(hosts: Hosts) -> None:
    await results_arrive(hosts, 240)


async def test_lists_arrive_as_they_were_sent(hosts: Hosts) -> None:
    await lists_arrive(hosts, 4)
