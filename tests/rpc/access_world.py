"""A hub with people of every role, and with what servers and callers have: for tests of who may do what."""

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest

from hubbubd.config import HubSettings, ServerConfig
from hubbubd.core.access import Grant, Role
from hubbubd.core.inbox.request_states import CauseSource, Origin, PendingRequest, RequestKind
from hubbubd.core.tasks import Task, TaskRole
from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.oversight import AuthorizationCode
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.store.vault.file import TokenFile
from hubbubd.upstream.connector import McpConnector

from .conftest import Caller, gate, settled

SERVER, ELSEWHERE = "away", "elsewhere"
SOMEBODY = "somebody"
ANSWER = b'{"name":"x"}'
FORM = b'{"message":"?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}'
APPROVAL = json.dumps(
    {
        "message": "",
        "reason": "",
        "rule": {
            "name": "r",
            "needed": 1,
            "not_by_caller": False,
            "approvers": [],
            "edit": True,
            "remember_s": [3600],
            "terms": "",
        },
        "tool": {"name": "t"},
        "arguments": {},
        "digest": "sha256:0",
        "definition": "",
        "caller": {"name": "me", "host": "", "profile": "", "roles": []},
        "before": [],
    }
).encode()


@dataclass
class World:
    """A hub with two servers that are never there, so that calls wait, and requests that a server might have made."""

    hub: Hub
    address: str
    channel: grpc.aio.Channel
    numbers: Any

    async def caller(self, role: Role, *servers: str, name: str = "") -> Caller:
        """Somebody with a token."""
        grants = [Grant(role, servers or ("*",))]
        name = name or f"{role}{next(self.numbers)}"
        _, secret = await self.hub.tokens.create(name, grants, by="test", ttl_s=None, may_name_others=False)
        return Caller(self.channel, (("authorization", f"Bearer {secret}"),))

    def pending(
        self,
        principal: str,
        source: CauseSource,
        server: str = SERVER,
        kind: RequestKind = RequestKind.ELICITATION_FORM,
    ) -> PendingRequest:
        """A request that a server makes because of somebody's call; the hub itself makes one for approval."""
        approval = kind is RequestKind.APPROVAL
        return PendingRequest(
            id=f"req_{next(self.numbers)}",
            server=server,
            kind=kind,
            origin=Origin.HUB if approval else Origin.PLAIN,
            request=APPROVAL if approval else FORM,
            created_at=self.hub.clock.now(),
            deadline=None,
            cause_source=source,
            principal=principal,
        )

    async def request(
        self,
        principal: str,
        source: CauseSource = CauseSource.WIRE,
        server: str = SERVER,
        kind: RequestKind = RequestKind.ELICITATION_FORM,
    ) -> str:
        """One that is open."""
        request = self.pending(principal, source, server, kind)
        await self.hub.inbox.open([request])
        return request.id

    async def approval(self, principal: str) -> str:
        """One for approval."""
        return await self.request(principal, kind=RequestKind.APPROVAL)

    async def claimed(self, principal: str, by: str, of: str = "") -> tuple[str, str]:
        """One that is claimed, with the claim's id."""
        request = await self.hub.inbox.claim(of or await self.request(principal), by, 0)
        return request.id, request.claim.id

    async def call(self, principal: str, server: str = SERVER) -> str:
        """One that waits for its server."""
        spec = CallSpec(server=server, method="tools/call", params=b'{"name":"x"}', call_id=f"call{next(self.numbers)}")
        return (await self.hub.calls.start(spec, principal)).id

    async def task(self, principal: str, server: str = SERVER) -> str:
        """One that the hub holds for its server."""
        request, now = self.pending(principal, CauseSource.WIRE, server), self.hub.clock.now()
        task = Task(
            id=f"task{next(self.numbers)}",
            server=server,
            fingerprint="f",
            role=TaskRole.RECEIVER,
            method="elicitation/create",
            created_at=now,
            last_updated_at=now,
            pending_ids=(request.id,),
            principal=principal,
        )
        await self.hub.tasks.add(task, request)
        return task.id


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = await SqliteStore.open(":memory:")
    urls = {SERVER: "http://127.0.0.1:9/mcp", ELSEWHERE: "http://127.0.0.1:9/other"}
    servers = {name: ServerConfig(name=name, transport="http", url=url) for name, url in urls.items()}
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        await stack.enter_async_context(settled())
        connector = McpConnector(TokenFile.open(tmp_path))
        hub = await stack.enter_async_context(Hub.open(store, connector, servers, HubSettings(data_dir=tmp_path)))
        address = await stack.enter_async_context(serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=0))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        yield World(hub, address, channel, count(1))


async def let_in(hub: Hub, person: str) -> str:
    """The name of the token of a host that a person has let in."""
    verifier = "v" * 43
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    consent = AuthorizationCode(
        id="",
        client_id="c",
        client_name=f"host of {person}",
        redirect_uri="x:",
        redirect_named=False,
        redirect_host="x:",
        challenge=challenge,
        endpoint="/mcp",
        servers=("*",),
        granted_by=person,
        granted_with="local",
        ends_at=None,
        lasts_s=60.0,
        created_at=0.0,
    )
    code = await hub.logins.allow(consent, f"page of {person}", hub.clock.now())
    return (await hub.logins.exchange(code, "c", None, verifier)).token.name
