"""The input of a call, and its live events."""

from dataclasses import dataclass, field
from typing import Any

from hubbubd import payload


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpec:
    """What to call. Raises InvalidArgument for `params` that are no JSON object; empty ones are an empty object.

    They are parsed here, unless the `message` is given that they were made from.

    Times are in seconds, None for the server's own. `call_id` is the idempotency key. `as_task` requests a task at the
    server; then `timeout_s` only limits its creation.
    """

    server: str
    method: str
    params: bytes = b""
    call_id: str | None = None
    timeout_s: float | None = None
    max_s: float | None = None
    as_task: bool = False
    message: dict[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)
    """The parsed params."""

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
