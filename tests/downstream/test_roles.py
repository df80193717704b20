"""What hosts of each role see and use of two servers, and of what somebody else's host has made there."""

from typing import Any

import pytest

from hubbubd import payload
from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.filters import CallFilter
from hubbubd.downstream import McpEndpoint, McpHost, ProfileView
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era

from ..runtime.conftest import FORM, World, open_requests, server
from .conftest import handles
from .scripted import ABLE, REVISIONS, ScriptedHost, asks
from .test_profiles import listed, offers

EXTENSION = "io.modelcontextprotocol/tasks"
SERVERS = ("one", "two")
TWO = ("two",)
ROLES: dict[str, tuple[tuple[Grant, ...], list[str]]] = {
    "viewer": ((Grant(Role.VIEWER),), []),
    "responder": ((Grant(Role.RESPONDER),), []),
    "operator": ((Grant(Role.OPERATOR),), []),
    "caller of one server": ((Grant(Role.CALLER, TWO),), ["two"]),
    "responder, and caller of one": ((Grant(Role.RESPONDER), Grant(Role.CALLER, TWO)), ["two"]),
    "caller": ((Grant(Role.CALLER),), [*SERVERS]),
    "admin": ((Grant(Role.ADMIN),), [*SERVERS]),
}
USES: dict[str, dict[str, Any]] = {
    "tools/call": {"name": "SERVER__do_it"},
    "prompts/get": {"name": "SERVER__ask"},
    "resources/read": {"uri": "hubbub://s/SERVER/file:///a"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "SERVER__ask"},
        "argument": {"name": "a", "value": ""},
    },
    "resources/subscribe": {"uri": "hubbub://s/SERVER/file:///a"},
}

METHODS = [(era, method) for era in Era for method in USES if (era, method) != (Era.STATELESS, "resources/subscribe")]
CALL: dict[str, Any] = {"name": "one__do_it", "arguments": {}}
GIVEN = {"action": "accept", "content": {"name": "x"}}


@pytest.fixture
async def hub(world: World) -> Any:
    """A hub with two servers that offer the same."""
    for name in SERVERS:
        offers(world.peers[name])
        world.peers[name].capabilities |= {"resources": {"subscribe": True}, "completions": {}}
    async with world.hub(server("one"), server("two")) as hub:
        await listed(hub)
        yield hub


def host_of(hub: Hub, era: Era, grants: tuple[Grant, ...], name: str = "bob") -> ScriptedHost:
    """Somebody's host at the endpoint of both servers, which can do everything."""
    settings = ProfileSettings(hold_s=1)
    endpoint = McpEndpoint(hub, ProfileView(hub, "p", lambda: settings), handles(hub))
    who = Principal(name=name, grants=grants, credential=name)
    able: dict[str, Any] = {**ABLE, "extensions": {EXTENSION: {}}}
    host = McpHost(principal=who, revision=REVISIONS[era], capabilities=able)
    return ScriptedHost(endpoint, host, clock=hub.clock.steady)


def of(server: str, params: dict[str, Any]) -> dict[str, Any]:
    """Params with a server's name put in."""
    return payload.loads(payload.dumps(params).replace(b"SERVER", server.encode()))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("era", "method"), METHODS)
async def test_a_role_uses_what_it_may_call_and_the_rest_is_not_there(
    world: World, hub: Hub, role: str, method: str, era: Era
) -> None:
    grants, servers = ROLES[role]
    host = host_of(hub, era, grants)
    nowhere = (await host.call(method, **of("nowhere", USES[method])))["error"]
    for name in SERVERS:
        sent = len(world.peers[name].sent)
        response = await host.call(method, **of(name, USES[method]))
        assert (len(world.peers[name].sent) > sent) == (name in servers)
        if name not in servers:
            refused = response["error"]
            assert refused["code"] == nowhere["code"]
            assert refused["message"].replace(name, "nowhere") == nowhere["message"]


@pytest.mark.parametrize("role", ROLES)
async def test_no_role_reaches_what_the_host_of_somebody_else_has_under_way(world: World, hub: Hub, role: str) -> None:
    grants, servers = ROLES[role]
    asks(world, Era.HANDSHAKE, ("elicitation/create", FORM))
    ada = host_of(hub, Era.STATELESS, (Grant(Role.CALLER),), "ada")
    ada.host.capabilities = {"elicitation": {}}
    asked = (await ada.send("tools/call", CALL))["result"]
    (key,) = asked["inputRequests"]
    again = {**CALL, "requestState": asked["requestState"], "inputResponses": {key: GIVEN}}
    (call,) = hub.calls.select(CallFilter())
    open_before = [each.id for each in open_requests(hub)]

    bob = host_of(hub, Era.STATELESS, grants)
    assert (await bob.send("tools/call", again))["error"]["code"] == -32602
    for call_id in (call.id, "unknown"):
        response = await bob.send("tools/call", {"name": "hubbub_result", "arguments": {"call_id": call_id}})
        assert response["error"]["message"] == f"there is no call '{call_id}' of yours here, or it has been deleted"
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        refused = await bob.send(method, {"taskId": call.id, "inputResponses": {key: GIVEN}})
        assert refused["error"]["code"] == -32602
    if "two" in servers:
        assert "result" in await bob.call(name="two__do_it")
    assert bob.asked == []
    assert [each.id for each in open_requests(hub)] == open_before
    assert (await ada.send("tools/call", again))["result"]["content"] == [{"type": "text", "text": "done"}]
