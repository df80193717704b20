"""The run-time state of a client task whose call is under way."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskGroup

from hubbubd.core import tasks as core
from hubbubd.errors import Category, Fault, UpstreamError
from hubbubd.runtime.calls.queue import ActiveCall, ServerQueue
from hubbubd.telemetry.trace import propagated_span
from hubbubd.upstream.ports import McpLink

ACCEPT_S = 5.0
"""Seconds the end of a call waits for its server to accept a cancellation or an answer."""


@dataclass(slots=True, eq=False)
class ActiveTask:
    """A client task under way. `task_id` is the hub's id, empty until the task is stored; `remote_id` the server's id.

    `stateless` says that the server speaks 2026-07-28. `failure` is the error for which the hub gives the task up.
    `group` runs its work beside the polling, `wake` cuts the wait for the next poll short, `done` is set at its end.
    """

    task_id: str
    remote_id: str
    queue: ServerQueue
    active: ActiveCall
    stateless: bool = False
    _: KW_ONLY
    group: TaskGroup = field(default_factory=anyio.create_task_group)
    wake: anyio.Event = field(default_factory=anyio.Event)
    done: anyio.Event = field(default_factory=anyio.Event)
    fetching: bool = False
    """Whether `tasks/result` is under way."""
    failure: UpstreamError | None = None

    async def request(self, link: McpLink, method: str, **params: Any) -> dict[str, Any]:
        """Send a request about the task; what the server asks during it belongs to the call. Raises as `McpLink`."""
        # No span per poll, there would be too many: the task's own is propagated.
        call_id, span = self.active.call.id, propagated_span(self.active.last_span)
        # `tasks/result` is answered only when the task has ended.
        with anyio.move_on_after(self.queue.config.call_timeout_s if method != "tasks/result" else None):
            return await link.request(method, {"taskId": self.remote_id, **params}, call_id=call_id, span=span)
        message = f"{self.queue.config.name} did not answer {method} in time"
        raise UpstreamError(Fault(code="CALL_TIMEOUT", category=Category.TIMEOUT, message=message, retryable=True))

    async def wait_for_next_poll(self, seconds: float) -> None:
        """Wait `seconds` until the next poll; `wake` ends the wait early, after SHORTEST_POLL_S at the earliest."""
        await anyio.sleep(min(seconds, core.SHORTEST_POLL_S))
        with anyio.move_on_after(seconds - core.SHORTEST_POLL_S):
            await self.wake.wait()
        self.wake = anyio.Event()
