"""Orphans: tasks that a server has made for a call whose caller never learned of it, since the call ended first.

They are looked for with tasks/list (2025-11-25) and cancelled, at servers that nobody else talks to. Others may hold
tasks there for somebody with the same credential, and one of theirs is worth more than an orphan that its ttl ends.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import anyio
import structlog

from hubbubd.core.calls import Call
from hubbubd.core.tally import Tally
from hubbubd.core.tasks import ENDED, Task
from hubbubd.errors import HubError, PeerError
from hubbubd.runtime.background import Background
from hubbubd.runtime.calls.call_queue import ServerQueue
from hubbubd.runtime.records import Table
from hubbubd.upstream.ports import Era, Link

SEARCH_S = 30.0
"""How long an orphan is looked for."""

SETTLE_S = 1.0
"""How long after the last creation its task is surely known to the hub."""

MAX_PAGES = 20
"""Pages of tasks/list that are read to find one orphan."""

log = structlog.get_logger(__name__)


class Orphans:
    """The creations of tasks that are under way, and what became of those that were broken off."""

    def __init__(self, table: Table[Task], background: Background) -> None:
        self._table = table
        self._background = background
        self._creating = Tally()

    @contextmanager
    def looked_after(self, queue: ServerQueue, link: Link, call: Call, params: Mapping[str, Any]) -> Generator[None]:
        """While the block is open the server may make a task of the call."""
        if call.method != "tools/call" or "task" not in params or link.hello.era is Era.STATELESS:
            yield
            return
        self._creating.add(call.server)
        try:
            yield
        except anyio.get_cancelled_exc_class():
            able: Mapping[str, Any] = link.hello.capabilities.get("tasks") or {}
            if queue.config.transport == "stdio" and "list" in able and "cancel" in able:
                self._background.start_soon(self._search, link, call)
            raise
        finally:
            self._creating.take(call.server)

    async def _search(self, link: Link, call: Call) -> None:
        with anyio.move_on_after(SEARCH_S), suppress(PeerError, HubError):
            found = await _unfinished(link, call)
            if self._creating[call.server]:
                return  # one of these may be the task that another call is about to hear of
            await anyio.sleep(SETTLE_S)
            known = {task.remote_id for task in self._table if task.server == call.server}
            for remote_id in found - known:
                log.info("an orphaned task is cancelled", server=call.server, call=call.id, task=remote_id)
                await link.request("tasks/cancel", {"taskId": remote_id}, call_id=call.id)


async def _unfinished(link: Link, call: Call) -> set[str]:
    found: set[str] = set()
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await link.request("tasks/list", {"cursor": cursor} if cursor else None, call_id=call.id)
        found |= {task["taskId"] for task in page["tasks"] if task["status"] not in ENDED}
        cursor = page.get("nextCursor")
        if not cursor:
            break
    return found
