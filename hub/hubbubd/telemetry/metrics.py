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

    `whole` is a gauge of which each member of a fleet shows the number of all: added up, it is a multiple.
    """

    name: str
    shape: Shape
    unit: str
    about: str
    attributes: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    whole: bool = False


# Bounds of buckets, in seconds: servers take parts of a second to minutes, people seconds to a day, disks parts of a
# millisecond to seconds.
_MCP_S: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_PERSON_S: Final = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600, 14_400, 86_400)
_DISK_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

OPERATION: Final = Metric(
    name="mcp.client.operation.duration",
    shape=Shape.HISTOGRAM,
    unit="s",
    about="From a request's way out to the server's response, the wait for people included.",
    attributes=(
        "mcp.method.name",
        "gen_ai.operation.name",
        "gen_ai.tool.name",
        "gen_ai.prompt.name",
        "error.type",
        "rpc.response.status_code",
        "network.transport",
        "mcp.protocol.version",
    ),
    buckets=_MCP_S,
)
SERVED: Final = Metric(
    name="mcp.server.operation.duration",
    shape=Shape.HISTOGRAM,
    unit="s",
    about="From a host's request to the hub's response, the wait for servers and people included.",
    attributes=(
        "mcp.method.name",
        "gen_ai.operation.name",
        "gen_ai.tool.name",
        "gen_ai.prompt.name",
        "error.type",
        "network.transport",
        "mcp.protocol.version",
    ),
    buckets=_MCP_S,
)
SESSION: Final = Metric(
    name="mcp.client.session.duration",
    shape=Shape.HISTOGRAM,
    unit="s",
    about="How long connections have lasted that have ended.",
    attributes=("error.type", "network.transport", "mcp.protocol.version"),
    buckets=_MCP_S,
)
SERVERS: Final = Metric(
    name="hubbub.servers",
    shape=Shape.GAUGE,
    unit="{server}",
    about="Servers, by the state of their connection.",
    attributes=("state",),
    whole=True,
)
SERVERS_AWAY: Final = Metric(
    name="hubbub.servers.away",
    shape=Shape.GAUGE,
    unit="{server}",
    about="Servers that are wanted and not connected, by whether the hub has given up on them.",
    attributes=("gave_up",),
    whole=True,
)
SERVER_CONNECTED: Final = Metric(
    name="hubbub.server.connected",
    shape=Shape.GAUGE,
    unit="",
    about="Of each wanted server: 1 while it is connected, else 0.",
    attributes=("server",),
    whole=True,
)
RECONNECTS: Final = Metric(
    name="hubbub.server.reconnects",
    shape=Shape.COUNTER,
    unit="{connection}",
    about="Connections that were made again after one was lost.",
)
QUEUE_DEPTH: Final = Metric(
    name="hubbub.queue.depth",
    shape=Shape.GAUGE,
    unit="{call}",
    about="Calls that wait for their turn, of all servers.",
    whole=True,
)
QUEUE_WAIT: Final = Metric(
    name="hubbub.queue.wait",
    shape=Shape.HISTOGRAM,
    unit="s",
    about="From a call's arrival to its first turn.",
    buckets=_MCP_S,
)
PENDING: Final = Metric(
    name="hubbub.requests.pending",
    shape=Shape.GAUGE,
    unit="{request}",
    about="Pending requests that are open.",
    attributes=("kind",),
    whole=True,
)
OLDEST: Final = Metric(
    name="hubbub.requests.oldest_age",
    shape=Shape.GAUGE,
    unit="s",
    about="How long the oldest pending request that is open has waited; 0 when there is none.",
    attributes=("kind",),
    whole=True,
)
TIME_TO_ANSWER: Final = Metric(
    name="hubbub.requests.time_to_answer",
    shape=Shape.HISTOGRAM,
    unit="s",
    about="From a pending request's opening to its accepted answer.",
    attributes=("kind", "by"),
    buckets=_PERSON_S,
)
ANSWERS: Final = Metric(
    name="hubbub.answers",
    shape=Shape.COUNTER,
    unit="{answer}",
    about="Answers: by a person, an agent, or the hub when nobody answered in time.",
    attributes=("by", "outcome"),
)
APPROVALS: Final = Metric(
    name="hubbub.approvals",
    shape=Shape.COUNTER,
    unit="{approval}",
    about="Calls that a rule wants approved: `asked`, and how that ended.",
    attributes=("rule", "outcome"),
)
APPROVAL_WAIT: Final = Metric(
    name="hubbub.approvals.wait",
    shape=Shape.HISTOGRAM,
    unit="s",
    about="From the question about a call to its end.",
    attributes=("rule", "outcome"),
    buckets=_PERSON_S,
)
WATCHERS: Final = Metric(
    name="hubbub.watchers", shape=Shape.GAUGE, unit="{watcher}", about="Watches that are open. Always there."
)
WATCHERS_LAG: Final = Metric(
    name="hubbub.watchers.lag",
    shape=Shape.GAUGE,
    unit="{record}",
    about="Changed records that the slowest watcher has yet to take.",
)
WATCHERS_DROPPED: Final = Metric(
    name="hubbub.watchers.dropped",
    shape=Shape.COUNTER,
    unit="{watcher}",
    about="Watches that the hub has ended because their client read too slowly.",
)
HOST_SESSIONS: Final = Metric(
    name="hubbub.hosts.sessions",
    shape=Shape.GAUGE,
    unit="{session}",
    about="Sessions of MCP hosts over HTTP that are open; hosts of 2026-07-28 have none.",
)
STORE_AVAILABLE: Final = Metric(
    name="hubbub.store.available", shape=Shape.GAUGE, unit="", about="1 while the store can be written, else 0."
)
STORE_COMMIT: Final = Metric(
    name="hubbub.store.commit.duration",
    shape=Shape.HISTOGRAM,
    unit="s",
    about="How long whoever commits to the store waits until the commit is durable.",
    buckets=_DISK_S,
)
STORE_UNKNOWN: Final = Metric(
    name="hubbub.store.commits.unknown",
    shape=Shape.COUNTER,
    unit="{commit}",
    about="Attempts to commit that the database did not answer in time: whether it has kept them shows later.",
)
STORE_RECONNECTS: Final = Metric(
    name="hubbub.store.reconnects",
    shape=Shape.COUNTER,
    unit="{connection}",
    about="Connections for commits made again after one to the database was lost, in this life of a member.",
)
FORWARD: Final = Metric(
    name="hubbub.fleet.forward.duration",
    shape=Shape.HISTOGRAM,
    unit="s",
    about="How long another member took for what only it can do; `error.type` says why the forward itself failed.",
    attributes=("error.type",),
    buckets=_MCP_S,
)
FORWARD_FAILURES: Final = Metric(
    name="hubbub.fleet.forward.failures",
    shape=Shape.COUNTER,
    unit="{forward}",
    about="Forwards to another member that failed by themselves, and why: its connection, or who has the server.",
    attributes=("reason",),
)
FLEET_MEMBERS: Final = Metric(
    name="hubbub.fleet.members",
    shape=Shape.GAUGE,
    unit="{member}",
    about="Members of the fleet, as this one sees them.",
    attributes=("state",),
    whole=True,
)
FLEET_OWNED: Final = Metric(
    name="hubbub.fleet.owned", shape=Shape.GAUGE, unit="{server}", about="Servers that this member has."
)
FLEET_UNOWNED: Final = Metric(
    name="hubbub.fleet.unowned",
    shape=Shape.GAUGE,
    unit="{server}",
    about="Servers that no member has.",
    whole=True,
)
FLEET_TAKEOVERS: Final = Metric(
    name="hubbub.fleet.takeovers",
    shape=Shape.COUNTER,
    unit="{server}",
    about="Servers that this member has taken.",
    attributes=("why",),
)
FLEET_TAKEOVER: Final = Metric(
    name="hubbub.fleet.takeover.duration",
    shape=Shape.HISTOGRAM,
    unit="s",
    about="How long a server that this member has taken had been nobody's.",
    attributes=("why",),
    buckets=_MCP_S,
)
FLEET_LEASE: Final = Metric(
    name="hubbub.fleet.lease.remaining",
    shape=Shape.GAUGE,
    unit="s",
    about="For how long this member may act if the database does not answer again; 0 while it may not.",
)
FLEET_LAG: Final = Metric(
    name="hubbub.fleet.feed.lag",
    shape=Shape.GAUGE,
    unit="{revision}",
    about="Revisions by which this member is behind what another one has read.",
)
FLEET_LOST: Final = Metric(
    name="hubbub.fleet.fenced",
    shape=Shape.COUNTER,
    unit="{life}",
    about="Times that this member has started anew: it was declared gone, or the database had lost history.",
)
FLEET_CLOCK: Final = Metric(
    name="hubbub.fleet.clock.offset",
    shape=Shape.GAUGE,
    unit="s",
    about="By how much the database's clock is ahead of this member's; negative if it is behind.",
)
LOOP_LAG: Final = Metric(
    name="hubbub.loop.lag",
    shape=Shape.GAUGE,
    unit="s",
    about="How late, at the most in the last 15 s, the hub got to what was due.",
)
MEMORY: Final = Metric(
    name="hubbub.process.memory", shape=Shape.GAUGE, unit="By", about="The hub's own memory that is resident."
)
CPU: Final = Metric(
    name="hubbub.process.cpu", shape=Shape.COUNTER, unit="s", about="The hub's own time on processors, all threads."
)
OPEN_FDS: Final = Metric(
    name="hubbub.process.open_fds", shape=Shape.GAUGE, unit="{file}", about="The hub's open file descriptors."
)

METRICS: Final = tuple(each for each in list(globals().values()) if isinstance(each, Metric))
