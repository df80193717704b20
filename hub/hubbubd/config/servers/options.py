"""Which options of a server a connection is made from, and which are the hub's side alone.

Changing one of the former reconnects; a change of the latter is applied in place.
"""

from typing import Final

from hubbubd.config.servers.server import ServerConfig

CONNECTION: Final = frozenset(
    {
        *("name", "transport", "command", "args", "env", "cwd", "url", "headers", "oauth", "ca", "cookies"),
        *("protocol", "sampling", "elicitation", "receiver_tasks"),
        *("max_message_bytes", "max_messages_per_s", "max_bytes_per_s"),
    }
)
"""Which server it is, how it is reached, what it learns about the hub, and how it is read."""

HUB_SIDE: Final = frozenset(
    {
        *("allow_tools", "deny_tools"),
        *("connect_timeout_s", "call_timeout_s", "call_max_s", "progress_resets_timeout"),
        *("ping_interval_s", "ping_timeout_s"),
        *("retries", "backoff_s", "backoff_max_s", "stable_after_s", "retryable_errors"),
        *("max_in_flight", "max_queued", "one_question_at_a_time", "resume"),
        *("answer_timeout_s", "auto_reject_on_timeout", "timeout_message", "max_open_request_bytes"),
        *("roots", "receiver_task_ttl_s"),
        *("call_history_count", "call_history_age_s", "request_history_count", "request_history_age_s"),
        *("task_history_count", "task_history_age_s"),
    }
)
"""How the hub treats it; applied from the next call, request, attempt or interval on."""


def needs_connection(before: ServerConfig, after: ServerConfig) -> bool:
    """Return whether a change of configuration needs a new connection."""
    return any(getattr(before, name) != getattr(after, name) for name in CONNECTION)
