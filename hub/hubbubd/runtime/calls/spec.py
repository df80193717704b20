"""The input of a call, its live events, and the port for calls at other members of a fleet."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio

from hubbubd import payload
from hubbubd.core.calls.call_states import NO_ORIGIN, Call, CallOrigin


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpec:
    """What to call. Raises InvalidArgument for `params` that are no JSON object; empty ones are an empty object.

    `message` is the parsed form of `params`; if it is not given, `params` are parsed here.

    Times are in seconds, None for those of the server's options. `call_id` is the idempotency key. `as_task` requests a
    task at the server; then `timeout_s` only limits its creation. `origin` says where the call comes from, for rules.
    """

    server: str
    method: str
    params: bytes = b""
    call_id: str | None = None
    timeout_s: float | None = None
    max_s: float | None = None
    as_task: bool = False
    origin: CallOrigin = NO_ORIGIN
    message: dict[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)
    """The parsed params; parsed from `params` if they are not given."""

    def __post_init__(self) -> None:
        if not self.message:
            object.__setattr__(self, "message", payload.loads_message(self.params, "params"))


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """A progress notification of a call; live only."""

    call_id: str
    progress: float
    total: float | None
    message: str | None


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A log message about a call, as JSON params of `notifications/message`; live only."""

    call_id: str
    params: bytes


class RemoteCalls(Protocol):
    """Makes calls at the members that have their servers; `rpc/fleet/` implements it.

    All raise as `Calls` does, and Unavailable (OWNER_CHANGING, OWNER_LOST).
    """

    def has_server(self, server: str) -> bool:
        """Return whether another member has a server, so that calls go to it."""
        ...

    def may_forward(self) -> bool:
        """Return whether the current RPC may be forwarded to another member: not if a member has forwarded it here."""
        ...

    async def call(self, spec: CallSpec, principal: str, *, detached: bool) -> Call:
        """Make a call, wait for its end, and return it, whatever the outcome. Cancelling this ends the call there."""
        ...

    async def start(self, spec: CallSpec, principal: str) -> Call:
        """Queue a detached call where its server is; on return the call is durable, and this hub knows it."""
        ...

    async def cancel(self, call: Call, *, abort: bool) -> Call:
        """End a call, and return it as it has ended; a call that was sent is ended only with `abort`."""
        ...

    async def end_unless_awaited(self, call: Call) -> None:
        """End a call at another member, even a detached one, unless a caller at this hub waits for its end."""
        ...

    def follow_resource(
        self, server: str, uri: str, principal: str, on_change: Callable[[str], None]
    ) -> AbstractAsyncContextManager[anyio.Event]:
        """Call `on_change` with the URI at each change of a resource, during the block.

        Yields an event that is set if no more changes will come: the server is removed, or has refused to go on.
        """
        ...
