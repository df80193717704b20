"""A server with an app (MCP Apps), for the SDK's second generation: stdio, in both kinds of revisions.

app_server.py [HUGE_BYTES]

get_time  for the model, with the page ui://clock/page.html; says whether the client shows pages
set_zone  for the page alone
huge      for the model, with the page ui://clock/huge.html of so many bytes
"""

import sys

from mcp.server.apps import Apps, ResourceCsp, client_supports_apps
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resources import FunctionResource

PAGE, HUGE = "ui://clock/page.html", "ui://clock/huge.html"
HUGE_BYTES = int(sys.argv[1]) if len(sys.argv) > 1 else 1

apps = Apps()


@apps.tool(resource_uri=PAGE)
def get_time(ctx: Context) -> str:
    """Says what time it is."""
    return "12:00, on a page" if client_supports_apps(ctx) else "12:00"


@apps.tool(resource_uri=PAGE, visibility=["app"])
def set_zone(zone: str) -> str:
    """Sets the time zone."""
    return f"it is {zone}"


@apps.tool(resource_uri=HUGE)
def huge() -> str:
    """Has a page that is too large."""
    return "huge"


apps.add_html_resource(PAGE, "<!doctype html>12:00", csp=ResourceCsp(connect_domains=["https://api.example.com"]))
apps.add_resource(FunctionResource(uri=HUGE, name="huge", fn=lambda: "x" * HUGE_BYTES))

if __name__ == "__main__":
    MCPServer("clock", log_level="WARNING", extensions=[apps]).run("stdio")
