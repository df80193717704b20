"""A server with tools that are to be approved, and people who approve."""

from typing import Any

from hubbubd import payload
from hubbubd.config.sections.approvals import ApprovalSettings
from hubbubd.core.approvals.requests import arguments_digest
from hubbubd.core.inbox.forms import Approve, Deny
from hubbubd.core.inbox.request_states import PendingRequest
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.hub import Hub

from .conftest import World, spec, until
from .peer import Outcome, Sent

ARGUMENTS = {"branch": "release/1.4", "repo": "shop"}
SCHEMA = {
    "type": "object",
    "properties": {"repo": {"type": "string"}, "branch": {"type": "string", "minLength": 1}},
    "required": ["repo"],
}


def rules(*table: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """The settings of a hub with these rules."""
    return {"approvals": ApprovalSettings.model_validate({**settings, "rules": table})}


def asks(**rule: Any) -> dict[str, Any]:
    """The settings of a hub with one rule, which asks about the tool `t`."""
    return rules({"name": "deletes", "tools": ["t"], "action": "ask", **rule})


def offer(world: World, *tools: dict[str, Any]) -> None:
    """Has the server `one` list these tools."""

    async def listing(sent: Sent) -> Outcome:
        return {"tools": list(tools)} if sent.method == "tools/list" else {sent.method.partition("/")[0]: []}

    world.peer.capabilities = {"tools": {"listChanged": True}}
    world.peer.listing = listing


def tool(name: str = "t", **fields: Any) -> dict[str, Any]:
    return {"name": name, "description": "Deletes a branch", "inputSchema": SCHEMA, **fields}


def deletion(call_id: str | None = "c", **options: Any) -> CallSpec:
    """A call of the tool `t`."""
    params = payload.dumps({"name": "t", "arguments": options.pop("arguments", ARGUMENTS)})
    return spec(params=params, call_id=call_id, **options)


async def approve(hub: Hub, request: PendingRequest, by: str = "ada", **given: Any) -> PendingRequest:
    given = {"digest": arguments_digest(request), **given}
    return await hub.inbox.answer(request.id, Approve(**given), by, answer_id=None, claim_id=None)


async def deny(hub: Hub, request: PendingRequest, reason: str = "", by: str = "ada") -> PendingRequest:
    return await hub.inbox.answer(request.id, Deny(reason=reason), by, answer_id=None, claim_id=None)


async def connected(hub: Hub) -> None:
    await until(lambda: hub.servers.get("one").connection.state is ConnectionState.CONNECTED)


async def start(hub: Hub, call_id: str = "c", principal: str = "bot", **options: Any) -> None:
    """Make a call of the tool `t` once the server is connected."""
    await connected(hub)
    await hub.calls.start(deletion(call_id, **options), principal)
