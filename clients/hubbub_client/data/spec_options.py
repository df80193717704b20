"""The options of a server as a configuration has them. `make gen` makes this file from `server.proto`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hubbub_client.data.records import Record, Transport

Roots = Sequence[Mapping[str, Any]] | Literal["ask"]


@dataclass(frozen=True, kw_only=True)
class SpecOptions(Record):
    """The options of a server, in the order of the API; None stands for the default."""

    name: str
    command: str | None = None
    args: Sequence[str] | None = None
    env: Mapping[str, str] | None = None
    cwd: str | None = None
    url: str | None = None
    transport: Transport | None = None
    headers: Mapping[str, str] | None = None
    connect_timeout_s: float | None = None
    call_timeout_s: float | None = None
    call_max_s: float | None = None
    progress_resets_timeout: bool | None = None
    ping_interval_s: float | None = None
    ping_timeout_s: float | None = None
    retries: int | None = None
    backoff_s: Sequence[float] | None = None
    backoff_max_s: float | None = None
    stable_after_s: float | None = None
    retryable_errors: Sequence[str] | None = None
    allow_tools: Sequence[str] | None = None
    deny_tools: Sequence[str] | None = None
    confirm: Sequence[str] | None = None
    roots: Roots | None = None
    call_history_count: int | None = None
    call_history_age_s: float | None = None
    request_history_count: int | None = None
    request_history_age_s: float | None = None
    task_history_count: int | None = None
    task_history_age_s: float | None = None
    max_in_flight: int | None = None
    max_queued: int | None = None
    one_question_at_a_time: bool | None = None
    resume: bool | None = None
    answer_timeout_s: float | None = None
    auto_reject_on_timeout: bool | None = None
    timeout_message: str | None = None
    max_open_request_bytes: int | None = None
    sampling: bool | None = None
    elicitation: bool | None = None
    receiver_tasks: bool | None = None
    receiver_task_ttl_s: float | None = None
    apps: bool | None = None
    max_message_bytes: int | None = None
    max_messages_per_s: float | None = None
    max_bytes_per_s: int | None = None
    protocol: str | None = None
