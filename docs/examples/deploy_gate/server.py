# /// script
# requires-python = ">=3.11"
# dependencies = ["mcp==2.3.*"]
# ///
"""An MCP server with an approval gate: `deploy` asks a person first, by a form (elicitation).

hubbub servers add gate -- pipx run "$PWD/server.py"
hubbub call gate deploy service=shop version=1.4.2
"""

from typing import Annotated

from mcp.server.mcpserver import Elicit, ElicitationResult, MCPServer, Resolve
from pydantic import BaseModel, Field

mcp = MCPServer("gate", log_level="WARNING", instructions="Deploys services. A person approves each deployment.")


class Approval(BaseModel):
    """What is asked. Its fields become those of the form."""

    # To accept is to approve. Who wants to say no with a reason says no here; who does not, declines.
    approve: bool = Field(title="Approve", description="Deploy this version now", default=True)
    reason: str = Field(title="Reason", description="Kept with the deployment", min_length=3, max_length=200)


async def ask(service: str, version: str) -> Elicit[Approval]:
    """The question. The SDK asks it as the revision of MCP wants it."""
    return Elicit(f"Deploy {service} {version}?", Approval)


@mcp.tool()
async def deploy(service: str, version: str, approval: Annotated[ElicitationResult[Approval], Resolve(ask)]) -> str:
    """Deploys a version of a service, once somebody has approved it."""
    if approval.action != "accept":
        return f"{service} stays as it is: nobody has approved ({approval.action})"
    if not approval.data.approve:
        return f"{service} stays as it is: not approved ({approval.data.reason})"
    # Here your deployment begins.
    return f"{service} {version} is deployed ({approval.data.reason})"


if __name__ == "__main__":
    mcp.run()
