"""Hosts behind a bridge whose stream breaks, in virtual time."""

import gc
from collections.abc import Callable
from typing import Any

import pytest

from hubbubd import payload
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.downstream import BridgedHost, BridgedHosts, EndpointSession, HostOutbox, McpEndpoint, QuestionPolicy
from hubbubd.downstream.sessions.bridged_hosts import RETURN_S
from hubbubd.downstream.views.question_policy import Asked
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era

from ..runtime.conftest import FORM, PATIENCE_S, World, question, settle, until
from .conftest import handles
from .scripted import ABLE, Asking, asks, connected, principal

HELLO: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": ABLE, "clientInfo": {"name": "a-host"}}
ASKED = ("elicitation/create", FORM)


class Bridge:
    """A bridge with a host behind it that calls one tool."""

    def __init__(self, hub: Hub, policy: QuestionPolicy, tool: str = "t") -> None:
        self.hosts = BridgedHosts(hub.calls, hub.clock.steady)
        self._endpoint = McpEndpoint(hub, Asking(hub, policy), handles(hub))
        self._tool = tool
        self.told: list[Any] = []

    def connect(self, *, again: bool = False, **more: Any) -> BridgedHost:
        """Begins a stream, with the handshake and the call."""
        host = self.hosts.add_stream(principal(), "k" * 16, self._endpoint, HostOutbox())
        self.say(host, 0, "initialize", **HELLO)
        self.say(host, 1, "tools/call", again=again, name=self._tool, **more)
        return host

    @staticmethod
    def say(host: BridgedHost, id_: int, method: str, *, again: bool = False, **params: Any) -> None:
        """Makes a request."""
        message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
        host.receive(payload.dumps(message), again=again)

    async def next(self, host: BridgedHost, wanted: Callable[[Any], bool]) -> Any:
        """The next message of the hub that is wanted."""
        while True:
            while self.told:
                if wanted(message := self.told.pop(0)):
                    return message
            assert await host.outlet.wait_for_news(PATIENCE_S), "the hub says nothing"
            self.told += map(payload.loads, host.outlet.take_all())

    @staticmethod
    def answer(host: BridgedHost, asked: Any, result: Any) -> None:
        """Answers a question."""
        host.receive(payload.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}))

    async def asked(self, host: BridgedHost) -> Any:
        """The question that the host is asked."""
        return await self.next(host, lambda message: message.get("method") == ASKED[0])


@pytest.mark.parametrize("who", ["both", "host"])
async def test_a_question_stays_with_its_host_however_often_the_stream_breaks(world: World, who: Asked) -> None:
    got = asks(world, Era.HANDSHAKE, ASKED, ASKED)
    accepted = {"action": "accept", "content": {"name": "x"}}
    async with connected(world) as hub:
        bridge = Bridge(hub, QuestionPolicy(form=who))
        host = bridge.connect()
        await bridge.asked(host)
        claim = (await question(hub)).claim
        asked: Any = None
        for _ in range(2):
            bridge.hosts.end_stream(host, has_left=False)
            host = bridge.connect(again=True)
            asked = await bridge.asked(host)
            await settle(RETURN_S + 1)
            assert (await question(hub)).claim == claim
        bridge.answer(host, asked, accepted)
        second = await bridge.asked(host)
        assert ((await question(hub)).claim is None) == (claim is None)
        bridge.answer(host, second, accepted)
        said = await bridge.next(host, lambda message: message.get("id") == 1)
        assert said["result"]["content"][0]["text"] == "done"
        assert got == [accepted, accepted]
        assert [call.state for call in hub.calls.select(CallFilter())] == [CallState.COMPLETED]


async def test_a_cancel_that_comes_after_the_response_ends_nothing(world: World) -> None:
    got = asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        bridge = Bridge(hub, QuestionPolicy(form="inbox", hold_s=0, on_hold_end="ticket"))
        host = bridge.connect()
        said = await bridge.next(host, lambda message: message.get("id") == 1)
        call_id = said["result"]["_meta"]["hubbub/callId"]
        gone = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        host.receive(payload.dumps(gone))
        await settle(RETURN_S)
        assert hub.calls.get(call_id).state is CallState.WAITING_INPUT
        await hub.inbox.answer((await question(hub)).id, Accept({"name": "y"}), "a", answer_id=None, claim_id=None)
        await until(lambda: hub.calls.get(call_id).state is CallState.COMPLETED)
        assert len(got) == 1


def statuses(outlet: HostOutbox) -> list[str]:
    """What a host sees of its tasks."""
    told = [payload.loads(message) for message in outlet.take_all()]
    return [each["params"]["status"] for each in told if each.get("method") == "notifications/tasks/status"]


async def test_a_task_that_is_requested_again_is_the_same_and_told_of_once(world: World) -> None:
    got = asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        bridge = Bridge(hub, QuestionPolicy())
        ids: set[str] = set()
        for again in (False, True, True):
            host = bridge.connect(again=again, task={})
            ids.add((await bridge.next(host, lambda message: message.get("id") == 1))["result"]["task"]["taskId"])
        assert (len(ids), len(hub.calls.select(CallFilter()))) == (1, 1)
        request = await question(hub)
        await settle()
        await hub.inbox.answer(request.id, Accept({"name": "y"}), "a", answer_id=None, claim_id=None)
        await settle()
        assert (statuses(host.outlet), len(got)) == (["input_required", "working", "completed"], 1)


async def test_of_a_task_that_has_ended_nothing_is_kept_for_a_bridge_that_comes_back(world: World) -> None:
    asks(world, Era.HANDSHAKE)
    async with connected(world) as hub:
        bridge = Bridge(hub, QuestionPolicy())
        before = sessions()
        for again in (False, True):
            host = bridge.connect(again=again, task={})
            await bridge.next(host, lambda message: message.get("id") == 1)
            await settle()
            bridge.hosts.end_stream(host, has_left=True)
            await settle()
        del host
        assert sessions() == before


def sessions() -> int:
    """How many sessions are in memory."""
    gc.collect()
    return sum(isinstance(each, EndpointSession) for each in gc.get_objects())
