"""Cancels orphaned tasks: those a server created for a call that ended before the server's reply with the task id.

They are found with `tasks/list` (2025-11-25), only at stdio servers, which nobody else talks to. Elsewhere others may
hold tasks under the same credential, and cancelling one of theirs would be worse than an orphan that its ttl ends.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import anyio
import structlog

from hubbubd.core.calls.call_states import Call
from hubbubd.core.tally import Tally
from hubbubd.core.tasks import ENDED, Task
from hubbubd.errors import HubError, PeerError
from hubbubd.runtime.background import Background
from hubbubd.runtime.calls.queue import ServerQueue
from hubbubd.runtime.records import Table
from hubbubd.upstream.ports import Era, McpLink

SEARCH_S = 30.0
"""Seconds to look for an orphan."""

SETTLE_S = 1.0
"""Seconds after its creation within which a task of another call is in the table for certain."""

MAX_PAGES = 20
"""Pages of tasks/list that are read to find one orphan."""

log = structlog.get_logger(__name__)


class Orphans:
    """The task creations under way, by server, and the search for those broken off."""

    def __init__(self, table: Table[Task], background: Background) -> None:
        self._table = table
        self._background = background
        self._creations = Tally()

    @contextmanager
    def search_if_cancelled(self, queue: ServerQueue, link: McpLink, call: Call) -> Generator[None]:
        """If the block, a request whose params have a `task`, is cancelled, search for the task it may have created."""
        if call.method != "tools/call" or link.hello.era is Era.STATELESS:
            yield
            return
        self._creations.add(call.server)
        try:
            yield
        except anyio.get_cancelled_exc_class():
            task_capabilities: Mapping[str, Any] = link.hello.capabilities.get("tasks") or {}
            if queue.config.transport == "stdio" and "list" in task_capabilities and "cancel" in task_capabilities:
                self._background.start_soon(self._search, link, call)
            raise
        finally:
            self._creations.subtract(call.server)

    async def _search(self, link: McpLink, call: Call) -> None:
        """Find the task that a cancelled request may have created, and cancel it."""
        with anyio.move_on_after(SEARCH_S), suppress(PeerError, HubError):
            unfinished_ids = await _list_unfinished_ids(link, call)
            if self._creations[call.server]:
                return  # an unfinished task may belong to another call, whose reply is on its way
            await anyio.sleep(SETTLE_S)
            known_ids = {task.remote_id for task in self._table if task.server == call.server}
            for remote_id in unfinished_ids - known_ids:
                log.info("orphaned task cancelled", server=call.server, call=call.id, task=remote_id)
                await link.request("tasks/cancel", {"taskId": remote_id}, call_id=call.id)


async def _list_unfinished_ids(link: McpLink, call: Call) -> set[str]:
    """Return the server's ids of its tasks that have not ended."""
    unfinished_ids: set[str] = set()
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await link.request("tasks/list", {"cursor": cursor} if cursor else None, call_id=call.id)
        unfinished_ids |= {task["taskId"] for task in page["tasks"] if task["status"] not in ENDED}
        cursor = page.get("nextCursor")
        if not cursor:
            break
    return unfinished_ids
