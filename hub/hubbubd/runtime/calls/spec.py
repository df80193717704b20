"""What a call is made from, and what is told of it while it is under way."""

from dataclasses import dataclass, field
from typing import Any

from hubbubd import payload


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpec:
    """What to call. `params` is a JSON object or empty, and is read here, once; times in seconds, None for the
    server's own. Raises InvalidArgument.

    `as_task` makes it a task at the server; then `timeout_s` is only for its creation.
    """

    server: str
    method: str
    params: bytes = b""
    call_id: str | None = None
    timeout_s: float | None = None
    max_s: float | None = None
    as_task: bool = False
    message: dict[str, Any] = field(init=False, repr=False, compare=False)
    """The params as they were read."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", payload.loads_message(self.params, "params"))


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """How far a call has come; live only."""

    call_id: str
    progress: float
    total: float | None
    message: str | None


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A log line about a call, JSON params of notifications/message; live only."""

    call_id: str
    params: bytes
