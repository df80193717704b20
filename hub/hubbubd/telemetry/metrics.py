"""The table of all metrics of the hub. `docs/metrics.md` explains how to use them.

Those named `mcp.*` follow OpenTelemetry's semantic conventions (status: development), the others are the hub's own:
https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Shape(StrEnum):
    """Kind of instrument."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric by its OpenTelemetry name; `unit` is in UCUM. `buckets` are a histogram's upper bounds.

    `whole` says that each member of a fleet reports the figure of the whole fleet, so that members must not be summed.
    """

    name: str
    shape: Shape
    unit: str
    about: str
    attributes: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    whole: bool = False


def _counter(name: str, unit: str, about: str, *attributes: str) -> Metric:
    """Return a metric that only grows."""
    return Metric(name=name, shape=Shape.COUNTER, unit=unit, about=about, attributes=attributes)


def _gauge(name: str, unit: str, about: str, *attributes: str, whole: bool = False) -> Metric:
    """Return a metric that goes up and down."""
    return Metric(name=name, shape=Shape.GAUGE, unit=unit, about=about, attributes=attributes, whole=whole)


def _histogram(name: str, about: str, buckets: tuple[float, ...], *attributes: str) -> Metric:
    """Return the metric of a duration in seconds."""
    return Metric(name=name, shape=Shape.HISTOGRAM, unit="s", about=about, attributes=attributes, buckets=buckets)


# Bounds of buckets, in seconds: servers take parts of a second to minutes, people seconds to a day, disks parts of a
# millisecond to seconds.
_MCP_S: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_PERSON_S: Final = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600, 14_400, 86_400)
_DISK_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

OPERATION: Final = _histogram(
    "mcp.client.operation.duration",
    "From a request's way out to the server's response, the wait for people included.",
    _MCP_S,
    "mcp.method.name",
    "gen_ai.operation.name",
    "gen_ai.tool.name",
    "gen_ai.prompt.name",
    "error.type",
    "rpc.response.status_code",
    "network.transport",
    "mcp.protocol.version",
)
SERVED: Final = _histogram(
    "mcp.server.operation.duration",
    "From a host's request to the hub's response, the wait for servers and people included.",
    _MCP_S,
    "mcp.method.name",
    "gen_ai.operation.name",
    "gen_ai.tool.name",
    "gen_ai.prompt.name",
    "error.type",
    "network.transport",
    "mcp.protocol.version",
)
SESSION: Final = _histogram(
    "mcp.client.session.duration",
    "How long connections have lasted that have ended.",
    _MCP_S,
    "error.type",
    "network.transport",
    "mcp.protocol.version",
)
SERVERS: Final = _gauge("hubbub.servers", "{server}", "Servers, by the state of their connection.", "state", whole=True)
SERVERS_AWAY: Final = _gauge(
    "hubbub.servers.away",
    "{server}",
    "Servers that are wanted and not connected, by whether the hub has given up on them.",
    "gave_up",
    whole=True,
)
SERVER_CONNECTED: Final = _gauge(
    "hubbub.server.connected", "", "Of each wanted server: 1 while it is connected, else 0.", "server", whole=True
)
RECONNECTS: Final = _counter(
    "hubbub.server.reconnects", "{connection}", "Connections that were made again after one was lost."
)
QUEUE_DEPTH: Final = _gauge(
    "hubbub.queue.depth", "{call}", "Calls that wait for their turn, of all servers.", whole=True
)
QUEUE_WAIT: Final = _histogram("hubbub.queue.wait", "From a call's arrival to its first turn.", _MCP_S)
PENDING: Final = _gauge("hubbub.requests.pending", "{request}", "Pending requests that are open.", "kind", whole=True)
OLDEST: Final = _gauge(
    "hubbub.requests.oldest_age",
    "s",
    "How long the oldest pending request that is open has waited; 0 when there is none.",
    "kind",
    whole=True,
)
TIME_TO_ANSWER: Final = _histogram(
    "hubbub.requests.time_to_answer",
    "From a pending request's opening to its accepted answer.",
    _PERSON_S,
    "kind",
    "by",
)
ANSWERS: Final = _counter(
    "hubbub.answers",
    "{answer}",
    "Answers: by a person, an agent, or the hub when nobody answered in time.",
    "by",
    "outcome",
)
APPROVALS: Final = _counter(
    "hubbub.approvals",
    "{approval}",
    "Calls that a rule wants approved: `asked`, and how that ended.",
    "rule",
    "outcome",
)
APPROVAL_WAIT: Final = _histogram(
    "hubbub.approvals.wait", "From the question about a call to its end.", _PERSON_S, "rule", "outcome"
)
WATCHERS: Final = _gauge("hubbub.watchers", "{watcher}", "Watches that are open. Always there.")
WATCHERS_LAG: Final = _gauge(
    "hubbub.watchers.lag", "{record}", "Changed records that the slowest watcher has yet to take."
)
WATCHERS_DROPPED: Final = _counter(
    "hubbub.watchers.dropped", "{watcher}", "Watches that the hub has ended because their client read too slowly."
)
HOST_SESSIONS: Final = _gauge(
    "hubbub.hosts.sessions",
    "{session}",
    "Sessions of MCP hosts over HTTP that are open; hosts of 2026-07-28 have none.",
)
STORE_AVAILABLE: Final = _gauge("hubbub.store.available", "", "1 while the store can be written, else 0.")
STORE_COMMIT: Final = _histogram(
    "hubbub.store.commit.duration", "How long a commit to the store waits until it is durable.", _DISK_S
)
STORE_UNKNOWN: Final = _counter(
    "hubbub.store.commits.unknown",
    "{commit}",
    "Attempts to commit that the database did not answer in time: whether it has kept them shows later.",
)
STORE_RECONNECTS: Final = _counter(
    "hubbub.store.reconnects",
    "{connection}",
    "Connections for commits made again after one to the database was lost, in this life of a member.",
)
FORWARD: Final = _histogram(
    "hubbub.fleet.forward.duration",
    "How long another member took for what only it can do; `error.type` says why the forward itself failed.",
    _MCP_S,
    "error.type",
)
FORWARD_FAILURES: Final = _counter(
    "hubbub.fleet.forward.failures",
    "{forward}",
    "Forwards to another member that failed by themselves, and why: its connection, or who has the server.",
    "reason",
)
FLEET_MEMBERS: Final = _gauge(
    "hubbub.fleet.members", "{member}", "Members of the fleet, as this one sees them.", "state", whole=True
)
FLEET_OWNED: Final = _gauge("hubbub.fleet.owned", "{server}", "Servers that this member has.")
FLEET_UNOWNED: Final = _gauge("hubbub.fleet.unowned", "{server}", "Servers that no member has.", whole=True)
FLEET_TAKEOVERS: Final = _counter("hubbub.fleet.takeovers", "{server}", "Servers that this member has taken.", "why")
FLEET_TAKEOVER: Final = _histogram(
    "hubbub.fleet.takeover.duration", "How long a server that this member has taken had been nobody's.", _MCP_S, "why"
)
FLEET_LEASE: Final = _gauge(
    "hubbub.fleet.lease.remaining",
    "s",
    "For how long this member may act if the database does not answer again; 0 while it may not.",
)
FLEET_LAG: Final = _gauge(
    "hubbub.fleet.feed.lag", "{revision}", "Revisions by which this member is behind what another one has read."
)
FLEET_FENCED: Final = _counter(
    "hubbub.fleet.fenced",
    "{life}",
    "Times that this member has restarted: it was declared gone, or the database had lost history.",
)
FLEET_CLOCK: Final = _gauge(
    "hubbub.fleet.clock.offset",
    "s",
    "By how much the database's clock is ahead of this member's; negative if it is behind.",
)
LOOP_LAG: Final = _gauge("hubbub.loop.lag", "s", "How late, at the most in the last 15 s, the hub got to what was due.")
MEMORY: Final = _gauge("hubbub.process.memory", "By", "The hub's own memory that is resident.")
CPU: Final = _counter("hubbub.process.cpu", "s", "The hub's own time on processors, all threads.")
OPEN_FDS: Final = _gauge("hubbub.process.open_fds", "{file}", "The hub's open file descriptors.")

METRICS: Final = tuple(each for each in list(globals().values()) if isinstance(each, Metric))
