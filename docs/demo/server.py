"""The demo's own server: each tool needs a person, or time, in another way.

Runs on the first generation of the MCP SDK, the one that can ask as a task: over stdio, or with the argument `http`
over HTTP at HOST and PORT, below /mcp.
"""

import os
import sys

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent, ToolAnnotations

mcp = FastMCP(
    "demo",
    instructions="Tools that ask people, or take their time.",
    log_level="WARNING",
    host=os.environ.get("HOST", "127.0.0.1"),
    port=int(os.environ.get("PORT", "8000")),
)

MENU = {
    "type": "object",
    "properties": {
        "dish": {
            "type": "string",
            "title": "Dish",
            "description": "What the kitchen makes today",
            "oneOf": [
                {"const": "soup", "title": "Tomato soup"},
                {"const": "curry", "title": "Vegetable curry"},
                {"const": "pasta", "title": "Pasta with pesto"},
            ],
            "default": "curry",
        },
        "portions": {"type": "integer", "title": "Portions", "minimum": 1, "maximum": 8, "default": 1},
        "spicy": {"type": "boolean", "title": "Spicy", "default": False},
        "note": {"type": "string", "title": "Note for the kitchen", "maxLength": 80},
    },
    "required": ["dish", "portions"],
}

TRIP = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "title": "City", "minLength": 1},
        "start": {"type": "string", "title": "First day", "format": "date"},
        "nights": {"type": "integer", "title": "Nights", "minimum": 1, "maximum": 30, "default": 3},
    },
    "required": ["city", "nights"],
}


@mcp.tool()
async def order_lunch(ctx: Context) -> str:
    """Orders lunch; asks what it shall be with a form."""
    answer = await ctx.session.elicit("What would you like for lunch?", MENU, related_request_id=ctx.request_id)
    if answer.action != "accept" or answer.content is None:
        return f"No lunch: {answer.action}"
    spicy = "spicy " if answer.content.get("spicy") else ""
    note = f" ({answer.content['note']})" if answer.content.get("note") else ""
    return f"Ordered: {answer.content['portions']} x {spicy}{answer.content['dish']}{note}"


@mcp.tool(annotations=ToolAnnotations(title="Tip the kitchen", readOnlyHint=False, destructiveHint=False))
async def tip_kitchen(amount: int, note: str = "") -> str:
    """Pays the kitchen a tip. It asks nobody: a rule of the hub does, where it is large."""
    return f"Tipped {amount}{f': {note}' if note else ''}"


@mcp.tool()
async def write_haiku(ctx: Context, topic: str = "waiting") -> str:
    """Returns a haiku; asks a model, or a person who plays one, to write it."""
    prompt = SamplingMessage(role="user", content=TextContent(type="text", text=f"Write a haiku about {topic}."))
    answer = await ctx.session.create_message(
        [prompt],
        max_tokens=100,
        system_prompt="Three lines: five, seven and five syllables.",
        related_request_id=ctx.request_id,
    )
    text = answer.content.text if isinstance(answer.content, TextContent) else "(no text)"
    return f"{text}\n-- {answer.model}"


@mcp.tool()
async def plan_trip(ctx: Context) -> str:
    """Plans a trip; asks with a form as a task, polls that task, then fetches its result."""
    answer = await ctx.session.experimental.elicit_as_task("Where shall we go?", TRIP, ttl=600_000)
    if answer.action != "accept" or answer.content is None:
        return f"Staying at home: {answer.action}"
    start = f" from {answer.content['start']}" if answer.content.get("start") else ""
    return f"{answer.content['nights']} nights in {answer.content['city']}{start}"


@mcp.tool()
async def sign_up(ctx: Context) -> str:
    """Signs up; asks the person to visit a page."""
    answer = await ctx.elicit_url("Please sign up on this page.", "https://example.com/sign-up?plan=demo", "sign-up-1")
    return f"Sign-up: {answer.action}"


@mcp.tool()
async def long_walk(ctx: Context, steps: int = 10, step_s: float = 0.5) -> str:
    """Walks so many steps, each taking so many seconds, and reports progress after each."""
    for step in range(1, steps + 1):
        await anyio.sleep(step_s)
        await ctx.report_progress(step, steps, f"step {step} of {steps}")
    return f"Walked {steps} steps"


if __name__ == "__main__":
    mcp.run("streamable-http" if sys.argv[1:] == ["http"] else "stdio")
