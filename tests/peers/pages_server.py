"""A server with a page that must be visited before its tool works, for the first generation of the SDK (2025-11-25).

`statement` needs the visit and says how often it was called; `visit` is the visit, after which the server tells that
the elicitation is complete. `stdio` or `http` (PORT).
"""

import os
import sys

from mcp.server.fastmcp import Context, FastMCP
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp.types import ElicitRequestURLParams

ID = "sign-in"
mcp = FastMCP("pages", host="127.0.0.1", port=int(os.environ.get("PORT", "0")), log_level="WARNING")
visited: list[str] = []
attempts: list[str] = []


@mcp.tool()
async def statement() -> str:
    """Works once the page was visited."""
    attempts.append(ID)
    if not visited:
        page = ElicitRequestURLParams(
            mode="url", elicitationId=ID, message="Sign in first", url="https://example.com/sign-in"
        )
        raise UrlElicitationRequiredError([page])
    return f"attempt {len(attempts)}"


@mcp.tool()
async def count() -> int:
    """How often `statement` was called."""
    return len(attempts)


@mcp.tool()
async def visit(ctx: Context) -> str:
    """Visits the page."""
    visited.append(ID)
    await ctx.session.send_elicit_complete("of somebody else")
    await ctx.session.send_elicit_complete(ID)
    return "visited"


if __name__ == "__main__":
    mcp.run("stdio" if sys.argv[1] == "stdio" else "streamable-http")
