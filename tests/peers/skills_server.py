"""A server with skills (SEP-2640), for the SDK's second generation. It serves clients that declare the extension.

skills_server.py stdio | http        (PORT in the environment for the latter)

`skills/list` has pages of two. The skill `unlisted` is in no list, and `daily` has no digests. `publish` adds a skill.
"""

import hashlib
import os
import sys
from typing import Any

from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resources import TextResource
from mcp.shared.exceptions import MCPError
from mcp_types import CLIENT_CAPABILITIES_META_KEY as CAPABILITIES
from mcp_types import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY, PaginatedRequestParams, RequestParams

SKILLS = "io.modelcontextprotocol/skills"
PAGE = 2
DIRECTORY = "inode/directory"


def skill_file(name: str, description: str, text: str) -> str:
    """A SKILL.md."""
    return f"---\nname: {name}\ndescription: {description}\nmetadata:\n  version: '2.1'\n---\n\n# {name}\n\n{text}\n"


FILES = {
    "skill://git-workflow/SKILL.md": skill_file("git-workflow", "How branches are named", "See references/NAMES.md."),
    "skill://git-workflow/references/NAMES.md": "feature/NUMBER-words\n",
    "skill://acme/billing/refunds/SKILL.md": skill_file("refunds", "How money is paid back", "Ask first. ☂"),
    "skill://acme/billing/refunds/examples/email.md": "Dear customer\n",
    "shop://docs/returns/SKILL.md": skill_file("returns", "How goods come back", "In their box."),
    "skill://reports/daily/SKILL.md": skill_file("daily", "Today's report", "Look at the figures."),
    "skill://unlisted/SKILL.md": skill_file("unlisted", "In no list", "You know the way."),
}
DESCRIPTIONS = {uri: text.split("description: ")[1].split("\n")[0] for uri, text in FILES.items() if "SKILL.md" in uri}
LISTED = [uri for uri in DESCRIPTIONS if "unlisted" not in uri]


def entry(uri: str) -> dict[str, Any]:
    """The entry of a skill."""
    root = uri.removesuffix("SKILL.md")
    files = [
        {"uri": each, "digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}", "size": len(text.encode())}
        for each, text in FILES.items()
        if each.startswith(root)
    ]
    frontmatter = {
        "name": root.split("/")[-2],
        "description": DESCRIPTIONS[uri],
        "metadata": {"version": "2.1"},
    }
    return {"uri": uri, "frontmatter": frontmatter, "resources": "dynamic" if "daily" in root else files}


class UriParams(RequestParams):
    """Params that name a skill or a directory."""

    uri: str


class Skills(Extension):
    """The three methods."""

    identifier = SKILLS

    def settings(self) -> dict[str, Any]:
        return {"directoryRead": True}

    def methods(self) -> list[MethodBinding]:
        return [
            MethodBinding("skills/list", PaginatedRequestParams, self.list),
            MethodBinding("skills/get", UriParams, self.get),
            MethodBinding("resources/directory/read", UriParams, self.read_directory),
        ]

    async def list(self, ctx: Any, params: PaginatedRequestParams) -> Any:
        require_declared(ctx)
        at = int(params.cursor or 0)
        more = {"nextCursor": str(at + PAGE)} if at + PAGE < len(LISTED) else {}
        return {"skills": [entry(uri) for uri in LISTED[at : at + PAGE]], **more, **cached(300_000)}

    async def get(self, ctx: Any, params: UriParams) -> Any:
        require_declared(ctx)
        if params.uri not in DESCRIPTIONS:
            raise MCPError(INVALID_PARAMS, f"No skill is served at {params.uri}")
        return {"skill": entry(params.uri), **cached(0)}

    async def read_directory(self, ctx: Any, params: UriParams) -> Any:
        require_declared(ctx)
        below = f"{params.uri}/"
        names = dict.fromkeys(uri.removeprefix(below).split("/")[0] for uri in FILES if uri.startswith(below))
        if not names:
            raise MCPError(INVALID_PARAMS, f"{params.uri} is not a directory resource")
        types = {name: "text/markdown" if below + name in FILES else DIRECTORY for name in names}
        listed = [{"uri": below + name, "name": name, "mimeType": types[name]} for name in names]
        return {"resources": listed, **cached(0)}


def require_declared(ctx: Any) -> None:
    """Refuse a client that does not declare the extension, as a server may."""
    meta: dict[str, Any] = ctx.meta or {}
    declared = meta.get(CAPABILITIES, {}).get("extensions", {})
    if SKILLS not in declared:
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability")


def cached(ttl_ms: int) -> dict[str, Any]:
    """What a result that may be kept says of it."""
    return {"resultType": "complete", "ttlMs": ttl_ms, "cacheScope": "public"}


mcp = MCPServer("skills", log_level="WARNING", extensions=[Skills()])


def add(uri: str) -> None:
    """Serve a file."""
    mcp.add_resource(TextResource(uri=uri, name=uri.split("/")[-1], mime_type="text/markdown", text=FILES[uri]))


for each in FILES:
    add(each)


@mcp.tool()
async def publish(name: str, ctx: Context) -> str:
    """Adds a skill of this name."""
    uri = f"skill://{name}/SKILL.md"
    FILES[uri], DESCRIPTIONS[uri] = skill_file(name, "New", "It is new."), "New"
    LISTED.append(uri)
    add(uri)
    await ctx.notify_resources_changed()
    return uri


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        mcp.run("stdio")
    else:
        mcp.run("streamable-http", host="127.0.0.1", port=int(os.environ["PORT"]))
