"""Sessions of coding agents in the terminal UI: followed, answered, continued, stopped."""

import json
from typing import Any

from hubbub.v1 import call_pb2, inbox_pb2

from ..clients.coding_agents import STATE, Agents
from ..clients.conftest import ScriptedHub, hub, told
from .conftest import at_terminal

__all__ = ["hub"]


async def test_a_session_is_followed_and_its_question_answered_by_the_agents_own_options(hub: ScriptedHub) -> None:
    agents = Agents(hub, coder=[STATE, {**STATE, "id": "s2", "title": "Write tests", "state": "idle"}])
    agents.ask("s1")
    answered: list[Any] = []

    def answer(request: Any) -> Any:
        answered.append(request)
        done = inbox_pb2.PendingRequest(id="q1", server="coder", state=inbox_pb2.PENDING_REQUEST_STATE_ANSWERED)
        return inbox_pb2.AnswerPendingRequestResponse(pending_request=done)

    hub.replies["AnswerPendingRequest"] = answer
    async with at_terminal(hub, size=(110, 40)) as ann:
        await ann.sees("1 form")
        await ann.press("8")
        await ann.sees("2 sessions · 1 waiting for an answer", "Round the prices", "▸ Write", "Run npm test?")
        await ann.press("a")
        await ann.sees("Command", "npm test", "in the folder /srv/shop", "Allow (ctrl+s)", "Always (f5)", "Reject (f8)")
        await ann.press("f8")
        await ann.sees("2 sessions")
        assert json.loads(answered[0].accept.content) == {"decision": "no"}
        agents.sessions["coder"] = [{**STATE, "state": "idle", "stopReason": "cancelled"}]
        agents.say()
        await ann.sees("1 session", "the turn ended: cancelled")
        await ann.press("escape")
        await ann.sees("1 Inbox")


async def test_a_session_goes_on_with_a_prompt_and_what_goes_wrong_is_said(hub: ScriptedHub) -> None:
    Agents(hub, coder=[{**STATE, "state": "idle"}])
    result = {"isError": True, "content": [{"type": "text", "text": "SESSION_LOST: start another"}]}
    call = call_pb2.Call(id="c1", server="coder", method="tools/call", state=call_pb2.CALL_STATE_COMPLETED)
    call.result = json.dumps(result).encode()
    hub.replies["StartCall"] = lambda _: call_pb2.StartCallResponse(call=call)
    hub.streams["WatchCalls"] = told(call_pb2.WatchCallsResponse, call)
    hub.replies["GetCall"] = lambda _: call_pb2.GetCallResponse(call=call)
    async with at_terminal(hub, size=(100, 30), notices=True) as ann:
        await ann.press("8")
        await ann.sees("1 session", "Round the prices")
        await ann.press("c")
        await ann.sees("Go on with Round the prices")
        await ann.types("and the tests")
        await ann.press("enter")
        await ann.sees("SESSION_LOST: start another")
        sent = hub.requests("StartCall")[0]
        assert json.loads(sent.spec.params) == {
            "name": "continue",
            "arguments": {"session": "s1", "prompt": "and the tests"},
        }
        await ann.press("x")
        await ann.sees("no turn is under way")


async def test_where_there_is_no_agent_the_command_that_adds_one_is_shown(hub: ScriptedHub) -> None:
    Agents(hub)
    async with at_terminal(hub, size=(100, 30)) as ann:
        await ann.press("8")
        await ann.sees("No session of a coding agent", "servers add coder --agent opencode")
        await ann.press("2")
        await ann.sees("2 Servers")
