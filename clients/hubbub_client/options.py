"""Options of any call: its limits, its id, and its callbacks."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict, TypeVar

from hubbub.v1 import call_pb2
from hubbub_client import payload
from hubbub_client.data.literals import LogLevel
from hubbub_client.data.records import Call, PendingRequest, Progress
from hubbub_client.data.watch_events import CallEvent, Progressed, Upsert
from hubbub_shared.durations import to_duration

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"

A = TypeVar("A")
OnProgress = Callable[[Progress], Awaitable[None] | None]
OnPending = Callable[[str], Awaitable[None] | None]
Answer = Mapping[str, Any] | str | bool | PendingRequest | None
# It gets a PendingRequest, or a SyncPendingRequest from `sync`.
OnRequest = Callable[[Any], Awaitable[Answer] | Answer]


class CallCallbacks(TypedDict, total=False):
    """Callbacks of one call; each may be a coroutine function. An exception in one ends the wait, which raises it.

    `on_progress` gets each Progress. `on_pending` gets the id of each pending request that the call caused, and
    `on_perhaps_pending` of each that it or another call caused. The others answer the pending requests of this call
    only (docs/library.md says what they return).
    """

    on_progress: OnProgress | None
    on_pending: OnPending | None
    on_perhaps_pending: OnPending | None
    on_form: OnRequest | None
    on_page: OnRequest | None
    on_sampling: OnRequest | None
    on_roots: OnRequest | None


CALLBACKS = CallCallbacks.__optional_keys__


class CallOptions(CallCallbacks, total=False):
    """Options of a call. The server's configuration decides about limits that are missing or None.

    `timeout_s` limits the seconds without progress, `max_s` all seconds; neither counts while a person is asked. A
    second call with the same `call_id` is the same call. `as_task` makes the server run a tools/call as a task, which
    `hub.tasks` has under the call's `task_id`. `log_level` asks a 2026-07-28 server for log messages about this call.
    """

    timeout_s: float | None
    max_s: float | None
    call_id: str | None
    as_task: bool
    log_level: LogLevel | None


def make_call_spec(
    server: str, method: str, params: Mapping[str, Any] | None, options: CallOptions
) -> call_pb2.CallSpec:
    """Return the CallSpec of a call. Raises TypeError or ValueError for params that JSON cannot express."""
    timeout_s, max_s = options.get("timeout_s"), options.get("max_s")
    # Callbacks need the id before the call begins.
    has_callbacks = any(options.get(name) is not None for name in CALLBACKS)
    if (level := options.get("log_level")) is not None:
        base_params = params or {}
        params = {**base_params, "_meta": {**payload.as_object(base_params.get("_meta")), LOG_LEVEL_KEY: level}}
    return call_pb2.CallSpec(
        server=server,
        method=method,
        params=b"" if params is None else payload.dumps(params),
        call_id=options.get("call_id") or (secrets.token_hex(16) if has_callbacks else ""),
        timeout=None if timeout_s is None else to_duration(timeout_s),
        max_duration=None if max_s is None else to_duration(max_s),
        as_task=options.get("as_task", False),
    )


@dataclass
class Reporter:
    """Calls the callbacks of a call for the events of its watch, once for each pending request."""

    callbacks: CallCallbacks
    reported: set[tuple[bool, str]] = field(default_factory=set[tuple[bool, str]])

    @property
    def has_callbacks(self) -> bool:
        """Return whether there is any callback to report to."""
        return any(map(self.callbacks.get, ("on_progress", "on_pending", "on_perhaps_pending")))

    async def report(self, event: CallEvent) -> None:
        """Call the callbacks for one event. Raises what a callback raises."""
        match event:
            case Progressed(progress=progress):
                await _call_callback(self.callbacks.get("on_progress"), progress)
            case Upsert(record=call):
                await self._report_pending(call)
            case _:
                pass

    async def _report_pending(self, call: Call) -> None:
        """Call the callbacks for the pending requests of a call that were not reported yet."""
        # Reported again if it turns out to be certain that this call caused it.
        for is_certain, ids in ((True, call.pending_ids), (False, call.perhaps_pending_ids)):
            callback = self.callbacks.get("on_pending") if is_certain else self.callbacks.get("on_perhaps_pending")
            for id_ in ids:
                if (is_certain, id_) not in self.reported:
                    self.reported.add((is_certain, id_))
                    await _call_callback(callback, id_)


async def _call_callback(callback: Callable[[A], Awaitable[None] | None] | None, argument: A) -> None:
    """Call a callback, if there is one, and await its result if it is a coroutine function."""
    if callback is not None and (awaitable := callback(argument)) is not None:
        await awaitable
