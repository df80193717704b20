"""The demo's server for a fleet: it asks in rounds (MCP 2026-07-28), over HTTP at HOST and PORT, below /mcp.

A round is a response that says what is to be asked. So a question does not depend on the connection over which it came:
another member of the fleet sends the answer. The key of its states is fixed, as several hubs have to send them back.
"""

import os

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.request_state import RequestStateSecurity
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

mcp = MCPServer("kitchen", log_level="WARNING", request_state_security=RequestStateSecurity(keys=["of the demo" * 3]))

MENU = {
    "type": "object",
    "properties": {
        "dish": {"type": "string", "title": "Dish", "enum": ["soup", "curry", "pasta"], "default": "curry"},
        "portions": {"type": "integer", "title": "Portions", "minimum": 1, "maximum": 8, "default": 1},
    },
    "required": ["dish", "portions"],
}


@mcp.tool()
async def order_lunch(ctx: Context) -> str | InputRequiredResult:
    """Orders lunch; asks what it shall be with a form."""
    if ctx.input_responses is None:
        form = ElicitRequestFormParams(message="What would you like for lunch?", requested_schema=MENU)
        return InputRequiredResult(input_requests={"lunch": ElicitRequest(params=form)}, request_state="asked")
    answer = ctx.input_responses["lunch"]
    if not isinstance(answer, ElicitResult) or answer.action != "accept" or answer.content is None:
        return "No lunch"
    return f"Ordered: {answer.content['portions']} x {answer.content['dish']}"


if __name__ == "__main__":
    mcp.run("streamable-http", host=os.environ.get("HOST", "127.0.0.1"), port=int(os.environ.get("PORT", "8000")))
