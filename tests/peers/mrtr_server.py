"""A server of the 2026-07-28 revision: it asks by `input_required` results. For the second generation of the SDK.

    mrtr_server.py stdio | http [--forgetful]        (PORT in the environment for the latter)

Its key is fixed, so that a state outlives the process; `--forgetful` gives each process its own.
"""

import json
import os
import sys

from journal import note
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.request_state import RequestStateSecurity
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    TextContent,
)

security = RequestStateSecurity.ephemeral() if "--forgetful" in sys.argv else RequestStateSecurity(keys=["k" * 32])
mcp = MCPServer("mrtr", log_level="WARNING", request_state_security=security)


def form(message: str, name: str, kind: str = "string") -> ElicitRequest:
    schema = {"type": "object", "properties": {name: {"type": kind, "title": name.title()}}, "required": [name]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def answers(ctx: Context) -> dict[str, object]:
    given = {
        key: answer.model_dump(mode="json", by_alias=True, exclude_none=True)
        for key, answer in (ctx.input_responses or {}).items()
    }
    for answer in given.values():
        note("mrtr", answer)
    return given


@mcp.tool()
async def greet(ctx: Context) -> str | InputRequiredResult:
    """Asks one question once."""
    if ctx.input_responses is None:
        return InputRequiredResult(input_requests={"who": form("Who are you?", "name")})
    answer = ctx.input_responses["who"]
    assert isinstance(answer, ElicitResult)
    return f"Hello {answer.content['name']}" if answer.content else f"No name: {answer.action}"


@mcp.tool()
async def two_rounds(ctx: Context) -> str | InputRequiredResult:
    """Asks for a name, then for an age; the state carries the first answer."""
    if ctx.request_state is None:
        return InputRequiredResult(input_requests={"name": form("Name?", "name")}, request_state="round 1")
    given = answers(ctx)
    if ctx.request_state == "round 1":
        state = json.dumps(given["name"])
        return InputRequiredResult(input_requests={"age": form("Age?", "age", "integer")}, request_state=state)
    return json.dumps({"name": json.loads(ctx.request_state), "age": given["age"]})


@mcp.tool()
async def three_questions(ctx: Context) -> str | InputRequiredResult:
    """Asks a form, a sampling and for the roots at once, with state."""
    if ctx.input_responses is None:
        message = SamplingMessage(role="user", content=TextContent(type="text", text="Say something"))
        questions = {
            "form": form("Name?", "name"),
            "sampling": CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=50)),
            "roots": ListRootsRequest(),
        }
        return InputRequiredResult(input_requests=questions, request_state="asked")
    return json.dumps({"state": ctx.request_state, "answers": answers(ctx)})


@mcp.tool()
async def three_forms(ctx: Context) -> str | InputRequiredResult:
    """Asks three forms at once, without state."""
    if ctx.input_responses is None:
        return InputRequiredResult(input_requests={key: form(f"{key}?", "value") for key in ("a", "b", "c")})
    return json.dumps(answers(ctx))


@mcp.tool()
async def visit(ctx: Context) -> str | InputRequiredResult:
    """Asks the person to visit a page."""
    if ctx.input_responses is None:
        params = ElicitRequestURLParams(message="Visit", url="https://example.com/visit", elicitation_id="visit-1")
        return InputRequiredResult(input_requests={"page": ElicitRequest(params=params)})
    return json.dumps(answers(ctx))


@mcp.tool()
async def state_only(ctx: Context, rounds: int = 2) -> str | InputRequiredResult:
    """Asks nothing; wants to be called again with its state so many times."""
    done = int(ctx.request_state or "0")
    if done < rounds:
        return InputRequiredResult(request_state=str(done + 1))
    return f"called {done + 1} times"


@mcp.tool()
async def endless_rounds(ctx: Context) -> str | InputRequiredResult:
    """Asks again, whatever the answer is."""
    return InputRequiredResult(input_requests={"again": form("Again?", "name")}, request_state="again")


@mcp.tool()
async def echo(text: str) -> str:
    """Returns the text."""
    return text


if __name__ == "__main__":
    if sys.argv[1] == "http":
        mcp.run("streamable-http", host="127.0.0.1", port=int(os.environ["PORT"]))
    else:
        mcp.run("stdio")
