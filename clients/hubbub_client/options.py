"""What goes with any call: its limits, its id, and the functions that are told of it or answer what it asks."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, TypeVar

from hubbub.v1 import call_pb2
from hubbub_client import numbers, payload
from hubbub_client.events import CallEvent, Progressed, Upsert
from hubbub_client.records import Call, PendingRequest, Progress

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"

A = TypeVar("A")
OnProgress = Callable[[Progress], Awaitable[None] | None]
OnPending = Callable[[str], Awaitable[None] | None]
Answer = Mapping[str, Any] | str | bool | PendingRequest | None
# It is given a PendingRequest, that of `sync` where there is no event loop.
OnRequest = Callable[[Any], Awaitable[Answer] | Answer]


class CallCallbacks(TypedDict, total=False):
    """Functions for one call; each may be a coroutine function. What they raise ends the wait and comes out of it.

    `on_progress` is told how far the call is, `on_pending` the id of each request that it puts into the inbox,
    `on_perhaps_pending` of each that it or another call has put there. The others answer what this call asks, and
    nothing else (docs/library.md says what they return).
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
    """How a call is made. What is not given, or None, is as the server's configuration says.

    `timeout_s` is the time without progress, `max_s` that in all, both without the time of people. The same `call_id`
    again finds the same call. `as_task` has the server carry out a tools/call as a task, found by `task_id` among
    `hub.tasks`. `log_level` asks a 2026-07-28 server for log messages about this call.
    """

    timeout_s: float | None
    max_s: float | None
    call_id: str | None
    as_task: bool
    log_level: LogLevel | None


def call_spec(server: str, method: str, params: Mapping[str, Any] | None, options: CallOptions) -> call_pb2.CallSpec:
    """The call as the API has it. Raises TypeError or ValueError for params that are no JSON."""
    timeout_s, max_s = options.get("timeout_s"), options.get("max_s")
    followed = any(options.get(name) is not None for name in CALLBACKS)  # by the id, which the hub would choose later
    if (level := options.get("log_level")) is not None:
        given = params or {}
        params = {**given, "_meta": {**payload.as_object(given.get("_meta")), LOG_LEVEL_KEY: level}}
    return call_pb2.CallSpec(
        server=server,
        method=method,
        params=b"" if params is None else payload.dumps(params),
        call_id=options.get("call_id") or (secrets.token_hex(16) if followed else ""),
        timeout=None if timeout_s is None else numbers.duration(timeout_s),
        max_duration=None if max_s is None else numbers.duration(max_s),
        as_task=options.get("as_task", False),
    )


@dataclass
class Reporter:
    """Tells the callbacks of a call what happens to it, each pending request once."""

    callbacks: CallCallbacks
    told: set[tuple[bool, str]] = field(default_factory=set[tuple[bool, str]])

    @property
    def wanted(self) -> bool:
        """Whether there is anybody to tell."""
        return any(map(self.callbacks.get, ("on_progress", "on_pending", "on_perhaps_pending")))

    async def tell(self, event: CallEvent) -> None:
        """Tells of one event of the call's watch. Raises what a callback raises."""
        match event:
            case Progressed(progress=progress):
                await _tell(self.callbacks.get("on_progress"), progress)
            case Upsert(record=call):
                await self._asked(call)
            case _:
                pass

    async def _asked(self, call: Call) -> None:
        # Once more of one that turns out to be the call's own.
        for certain, ids in ((True, call.pending_ids), (False, call.perhaps_pending_ids)):
            callback = self.callbacks.get("on_pending") if certain else self.callbacks.get("on_perhaps_pending")
            for id_ in ids:
                if (certain, id_) not in self.told:
                    self.told.add((certain, id_))
                    await _tell(callback, id_)


async def _tell(callback: Callable[[A], Awaitable[None] | None] | None, what: A) -> None:
    if callback is not None and (waited := callback(what)) is not None:
        await waited
