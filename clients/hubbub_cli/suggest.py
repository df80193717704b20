"""Completion for shells: names and ids that the hub knows; without a hub nothing, and quickly."""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import typer

from hubbub_client.records import CatalogKind

if TYPE_CHECKING:
    from hubbub_client.hub import Hub

# Time limits of a completion, seconds: in all, and for a hub that does not answer.
LIMIT_S = 2.0
CONNECT_S = 1.0
MOST = 200
# Shells insert a suggestion as it is, and one shell evaluates it first. So names of servers are offered only if no
# character of them means anything to a shell.
PLAIN = re.compile(r"[\w./:@%+,][\w./:@%+,-]*", re.ASCII)


def among(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Complete from these words."""
    words = list(names)
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def servers(context: typer.Context, incomplete: str) -> list[str]:
    """Complete names of servers."""

    async def work(hub: "Hub") -> Iterable[str]:
        return [server.name for server in await hub.servers.list(MOST)]

    return _of_hub(context, incomplete, work)


def requests(context: typer.Context, incomplete: str) -> list[str]:
    """Complete ids of open pending requests."""

    async def work(hub: "Hub") -> Iterable[str]:
        return [request.id for request in await hub.inbox.list(states=["open"], limit=MOST)]

    return _of_hub(context, incomplete, work)


def pages(context: typer.Context, incomplete: str) -> list[str]:
    """Complete ids of open pending requests with a page to visit."""

    async def work(hub: "Hub") -> Iterable[str]:
        found = await hub.inbox.list(states=["open"], kinds=["elicitation_url"], limit=MOST)
        return [request.id for request in found]

    return _of_hub(context, incomplete, work)


def tokens(context: typer.Context, incomplete: str) -> list[str]:
    """Complete names of tokens."""

    async def work(hub: "Hub") -> Iterable[str]:
        return [token.name for token in await hub.tokens.list(MOST)]

    return _of_hub(context, incomplete, work)


def calls(context: typer.Context, incomplete: str) -> list[str]:
    """Complete ids of the newest calls."""

    async def work(hub: "Hub") -> Iterable[str]:
        return [call.id for call in await hub.calls.list(limit=MOST)]

    return _of_hub(context, incomplete, work)


def tasks(context: typer.Context, incomplete: str) -> list[str]:
    """Complete ids of the newest tasks."""

    async def work(hub: "Hub") -> Iterable[str]:
        return [task.id for task in await hub.tasks.list(limit=MOST)]

    return _of_hub(context, incomplete, work)


def tools(context: typer.Context, incomplete: str) -> list[str]:
    """Complete tools of the server that the command names."""
    return _of_catalog(context, incomplete, "tool")


def prompts(context: typer.Context, incomplete: str) -> list[str]:
    """Complete prompts of that server."""
    return _of_catalog(context, incomplete, "prompt")


def resources(context: typer.Context, incomplete: str) -> list[str]:
    """Complete addresses of resources of that server."""
    return _of_catalog(context, incomplete, "resource")


def _of_catalog(context: typer.Context, incomplete: str, kind: CatalogKind) -> list[str]:
    server: str | None = context.params.get("server")

    async def work(hub: "Hub") -> Iterable[str]:
        entries, _ = await hub.catalog.read(kind, server)
        return [str((entry.uri if kind == "resource" else None) or entry.name) for entry in entries]

    return _of_hub(context, incomplete, work) if server else []


def _of_hub(context: typer.Context, incomplete: str, work: "Callable[[Hub], Awaitable[Iterable[str]]]") -> list[str]:
    import asyncio  # imported late, with gRPC

    from hubbub_client.discovery import Where, discover
    from hubbub_client.errors import HubbubError
    from hubbub_client.hub import connect

    given: dict[str, Any] = context.find_root().params
    where = Where(*(given.get(name) for name in Where._fields))

    async def session() -> Iterable[str]:
        async with asyncio.timeout(LIMIT_S), connect(**where._asdict(), connect_timeout_s=CONNECT_S) as hub:
            return await work(hub)

    try:
        # Without `client.json` there was never a hub to wait for.
        discover(where)
        found = asyncio.run(session())
    except (HubbubError, TimeoutError, OSError):
        return []
    return [word for word in dict.fromkeys(found) if word.startswith(incomplete) and PLAIN.fullmatch(word)]
