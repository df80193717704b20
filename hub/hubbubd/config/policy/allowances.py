"""What a caller of the API may set for a server, option by option: less than the operator may in a file.

An option missing from the table is refused, so that each new option needs a decision here.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final, cast

from hubbubd.config.hub import HubSettings
from hubbubd.config.sections.mcp import taken_by_alias
from hubbubd.config.servers.server import OWN_NAME, ServerConfig

SHORTEST_PAUSE_S: Final = 0.1
"""The shortest backoff, in seconds, of a server added over the API."""

SHORTEST_PING_S: Final = 1.0
"""Seconds between two pings of a server that was added over the API."""
LONGEST_S: Final = 7 * 86_400.0
"""The longest timeout or backoff, in seconds, of a server added over the API."""

# RFC 9110 and RFC 9112 (HTTP semantics, HTTP/1.1), and the transports of MCP.
ROUTING: Final = (
    *("host", "content-length", "transfer-encoding", "content-encoding", "content-type", "connection", "keep-alive"),
    *("upgrade", "te", "trailer", "expect", "proxy-*", "http2-settings", "accept", "accept-encoding", "range"),
    *("last-event-id", "mcp-*", ":*"),
)
"""Headers, in lower case, that the hub must set itself: routing, framing, and the MCP session."""

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

Problem = str | None
Allowance = Callable[[Any, HubSettings], Problem]


def is_routing(header: str) -> bool:
    """Return whether a header is in ROUTING, whatever its case."""
    return any(fnmatchcase(header.strip().lower(), each) for each in ROUTING)


def problems(config: ServerConfig, hub: HubSettings) -> Iterator[tuple[str, str]]:
    """Yield what a server of the API may not have: the field's path within its spec, and why not."""
    for name, value in config:
        if value == ServerConfig.model_fields[name].get_default(call_default_factory=True):
            continue
        if (problem := ALLOWANCES.get(name, _never)(value, hub)) is not None:
            yield name, problem
    for header, value in config.headers.items():
        if (problem := _header(header, value.get_secret_value())) is not None:
            yield f"headers.{header}", problem


def _header(name: str, value: str) -> Problem:
    if not name.startswith(":") and not _TOKEN.fullmatch(name):
        return "is not a valid header name"
    if is_routing(name):
        return "is a header of routing or framing, which only the hub may set"
    if any(character in value for character in "\r\n\0"):
        return "must be one line"
    return None


def _free(_value: Any, _hub: HubSettings) -> Problem:
    """Allow every value: it affects only the server's own callers."""
    return None


_ruled = _free
"""Allowed here, but checked elsewhere: by `Commands`, `Hosts`, the headers above, and the references."""


def _never(_value: Any, _hub: HubSettings) -> Problem:
    return "can be set in a configuration file only"


def _at_most(default: float, setting: str = "") -> Allowance:
    """Allow at most the option's default, or the hub's own `setting` if that is larger."""

    def check(value: Any, hub: HubSettings) -> Problem:
        own = getattr(hub, setting) if setting else default
        most = max(own, default)
        source = f", as the hub's {setting}" if setting and own == most else ""
        return f"may be at most {most}{source}" if value > most else None

    return check


def _waits(shortest: float) -> Allowance:
    def check(value: Any, _hub: HubSettings) -> Problem:
        given = cast("tuple[float, ...]", value if isinstance(value, tuple) else (value,))
        fits = all(shortest <= each <= LONGEST_S for each in given)
        return None if fits else f"must be {shortest:g} to {LONGEST_S:.0f} s"

    return check


def _name(value: Any, hub: HubSettings) -> Problem:
    if value == OWN_NAME:
        return "is the hub's own, to its hosts"
    alias = taken_by_alias(hub.mcp_profiles, value)
    return f"is the alias of another server: mcp.profiles.{alias}" if alias else None


def _ping(value: Any, _hub: HubSettings) -> Problem:
    fits = value == 0 or SHORTEST_PING_S <= value <= LONGEST_S
    return None if fits else f"must be 0, or {SHORTEST_PING_S:g} to {LONGEST_S:.0f} s"


def _default(name: str) -> float:
    return ServerConfig.model_fields[name].default or 0


ALLOWANCES: Final[Mapping[str, Allowance]] = MappingProxyType(
    {
        "name": _name,
        **dict.fromkeys(("transport", "protocol", "resume", "retries", "roots", "timeout_message"), _free),
        **dict.fromkeys(("allow_tools", "deny_tools", "retryable_errors", "one_question_at_a_time"), _free),
        **dict.fromkeys(("sampling", "elicitation", "receiver_tasks"), _free),
        **dict.fromkeys(("auto_reject_on_timeout", "progress_resets_timeout"), _free),
        **dict.fromkeys(("command", "args", "env", "cwd", "url", "headers"), _ruled),
        **dict.fromkeys(("oauth", "ca", "cookies"), _never),
        **dict.fromkeys(("backoff_s", "backoff_max_s"), _waits(SHORTEST_PAUSE_S)),
        **dict.fromkeys(("connect_timeout_s", "call_timeout_s", "call_max_s", "ping_timeout_s"), _waits(0)),
        **dict.fromkeys(("answer_timeout_s", "receiver_task_ttl_s", "stable_after_s"), _waits(0)),
        "ping_interval_s": _ping,
        **{
            name: _at_most(_default(name), setting)
            for name, setting in (
                ("max_in_flight", "calls_per_principal"),
                ("max_queued", "calls_per_principal"),
                ("max_message_bytes", "max_message_bytes"),
                ("max_messages_per_s", ""),
                ("max_bytes_per_s", ""),
                ("max_open_request_bytes", ""),
                ("call_history_count", "call_history_count"),
                ("call_history_age_s", "call_history_age_s"),
                ("request_history_count", "request_history_count"),
                ("request_history_age_s", "request_history_age_s"),
                ("task_history_count", "task_history_count"),
                ("task_history_age_s", "task_history_age_s"),
            )
        },
    }
)
"""Allowance of each option by name; an option's default is always allowed."""
