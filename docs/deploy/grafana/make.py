"""Writes `dashboards/hubbub.json`: what the hub's metrics look like in Grafana. Every query of it stands here."""

import itertools
import json
import sys
from pathlib import Path
from typing import NamedTuple

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef, Threshold, ThresholdsMode

FILE = Path(__file__).parent / "dashboards" / "hubbub.json"
SOURCE = DataSourceRef(type_val="prometheus", uid="prometheus")
HUB = 'job="hubbub"'
RATE = "[$__rate_interval]"
GREEN, AMBER, RED = "green", "orange", "red"


class Query(NamedTuple):
    """What is asked, and what its lines are called."""

    expr: str
    legend: str = ""


class Number(NamedTuple):
    """A number that turns amber and red at these values; a red one below the amber one means that less is worse."""

    title: str
    about: str
    unit: str
    expr: str
    amber: float
    red: float


class Graph(NamedTuple):
    """Lines over time."""

    title: str
    about: str
    unit: str
    queries: tuple[Query, ...]


def quantiles(metric: str, by: str = "", where: str = HUB) -> tuple[Query, ...]:
    """The median and the slowest twentieth of a histogram, for each value of the label `by`."""
    labels = f"le, {by}" if by else "le"
    name = f" {{{{{by}}}}}" if by else ""
    return tuple(
        Query(
            f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket{{{where}}}{RATE})))", f"{word}{name}"
        )
        for share, word in ((0.5, "median"), (0.95, "95 %"))
    )


def rate(metric: str, by: str, where: str = HUB) -> Query:
    """How often a counter counts in a second, for each value of the label `by`."""
    return Query(f"sum by ({by}) (rate({metric}{{{where}}}{RATE}))", f"{{{{{by}}}}}")


# Each member of a fleet shows the whole fleet in some gauges (docs/metrics.md): of these the maximum is asked for.
NUMBERS = (
    Number(
        "Pending requests",
        "What waits for somebody now.",
        "short",
        f"sum(max by (kind) (hubbub_requests_pending{{{HUB}}}))",
        10,
        50,
    ),
    Number(
        "Oldest pending request",
        "How long it has waited, and its call with it.",
        "s",
        f"max(hubbub_requests_oldest_age_seconds{{{HUB}}})",
        120,
        240,
    ),
    Number("Servers connected", "", "short", f'max(hubbub_servers{{{HUB}, state="connected"}})', 1, 0),
    Number(
        "Servers away",
        "Wanted and not connected, also those that the hub gave up on. See `hubbub doctor`.",
        "short",
        f"sum(max by (gave_up) (hubbub_servers_away{{{HUB}}}))",
        1,
        3,
    ),
    Number("Calls queued", "Waiting for their turn.", "short", f"max(hubbub_queue_depth{{{HUB}}})", 50, 100),
    Number("Store", "1 while it can be written.", "short", f"min(hubbub_store_available{{{HUB}}})", 1, 0),
)

ROWS: dict[str, tuple[Graph, ...]] = {
    "People": (
        Graph(
            "Pending requests, by kind",
            "",
            "short",
            (Query(f"max by (kind) (hubbub_requests_pending{{{HUB}}})", "{{kind}}"),),
        ),
        Graph(
            "Time to answer",
            "From the moment a pending request is opened to the accepted answer.",
            "s",
            quantiles("hubbub_requests_time_to_answer_seconds"),
        ),
        Graph("Answers, by who gave them", "", "reqps", (rate("hubbub_answers_total", "by"),)),
        Graph("Answers, by what came of them", "", "reqps", (rate("hubbub_answers_total", "outcome"),)),
    ),
    "Calls": (
        Graph(
            "Requests to servers",
            "",
            "reqps",
            (rate("mcp_client_operation_duration_seconds_count", "mcp_method_name"),),
        ),
        Graph(
            "Requests that failed",
            "",
            "reqps",
            (rate("mcp_client_operation_duration_seconds_count", "error_type", f'{HUB}, error_type!=""'),),
        ),
        Graph(
            "How long requests take",
            "The wait for people included.",
            "s",
            quantiles("mcp_client_operation_duration_seconds", "mcp_method_name"),
        ),
        Graph(
            "Wait for a turn", "Between a call's arrival and its start.", "s", quantiles("hubbub_queue_wait_seconds")
        ),
    ),
    "Servers": (
        Graph("Servers, by state", "", "short", (Query(f"max by (state) (hubbub_servers{{{HUB}}})", "{{state}}"),)),
        Graph(
            "Servers, by name",
            "1 while connected.",
            "short",
            (Query(f"min by (server) (hubbub_server_connected{{{HUB}}})", "{{server}}"),),
        ),
        Graph(
            "Connections made again",
            "",
            "reqps",
            (Query(f"sum(rate(hubbub_server_reconnects_total{{{HUB}}}{RATE}))", "all servers"),),
        ),
        Graph("How long connections last", "", "s", quantiles("mcp_client_session_duration_seconds")),
        Graph("Calls queued", "", "short", (Query(f"max(hubbub_queue_depth{{{HUB}}})", "all servers"),)),
    ),
    "Fleet": (
        Graph(
            "Members, by state",
            "As the member with the most of them sees it. Only hubs with [fleet] have this row's numbers.",
            "short",
            (Query(f"max by (state) (hubbub_fleet_members{{{HUB}}})", "{{state}}"),),
        ),
        Graph(
            "Servers, by whose they are",
            "",
            "short",
            (
                Query(f"sum by (instance) (hubbub_fleet_owned{{{HUB}}})", "{{instance}}"),
                Query(f"max(hubbub_fleet_unowned{{{HUB}}})", "nobody's"),
            ),
        ),
        Graph(
            "Servers taken, by why",
            "",
            "short",
            (Query(f"sum by (why) (increase(hubbub_fleet_takeovers_total{{{HUB}}}{RATE}))", "{{why}}"),),
        ),
        Graph(
            "How long servers were nobody's",
            "",
            "s",
            quantiles("hubbub_fleet_takeover_duration_seconds", "why"),
        ),
        Graph(
            "Time left to act",
            "If the database does not answer again. At 0 the member sends nothing to its servers.",
            "s",
            (Query(f"min by (instance) (hubbub_fleet_lease_remaining_seconds{{{HUB}}})", "{{instance}}"),),
        ),
        Graph(
            "Revisions behind, and lives lost",
            "",
            "short",
            (
                Query(f"max by (instance) (hubbub_fleet_feed_lag{{{HUB}}})", "behind {{instance}}"),
                Query(f"sum(increase(hubbub_fleet_fenced_total{{{HUB}}}{RATE}))", "lives lost"),
            ),
        ),
        Graph("Time to forward", "", "s", quantiles("hubbub_fleet_forward_duration_seconds")),
        Graph("Forwards that failed", "", "reqps", (rate("hubbub_fleet_forward_failures_total", "reason"),)),
        Graph(
            "Clocks",
            "By how much the database's clock is ahead of a member's.",
            "s",
            (Query(f"hubbub_fleet_clock_offset_seconds{{{HUB}}}", "{{instance}}"),),
        ),
    ),
    "The hub itself": (
        Graph(
            "Watchers",
            "Watches that are open, and those ended because their client read too slowly.",
            "short",
            (
                Query(f"sum(hubbub_watchers{{{HUB}}})", "open"),
                Query(f"sum(increase(hubbub_watchers_dropped_total{{{HUB}}}{RATE}))", "ended"),
            ),
        ),
        Graph("Time to write", "Of one commit to the store.", "s", quantiles("hubbub_store_commit_duration_seconds")),
        Graph(
            "Event loop lag",
            "How late the hub gets to what is due.",
            "s",
            (Query(f"max(hubbub_loop_lag_seconds{{{HUB}}})", "lag"),),
        ),
        Graph("Memory", "", "bytes", (Query(f"sum(hubbub_process_memory_bytes{{{HUB}}})", "resident"),)),
        Graph(
            "Processor",
            "Share of one core.",
            "percentunit",
            (Query(f"sum(rate(hubbub_process_cpu_seconds_total{{{HUB}}}{RATE}))", "hub"),),
        ),
        Graph("Open files", "", "short", (Query(f"sum(hubbub_process_open_fds{{{HUB}}})", "hub"),)),
    ),
}


def number(it: Number) -> stat.Panel:
    worse_below = it.red < it.amber
    steps = [
        Threshold(color=RED if worse_below else GREEN, value=None),
        Threshold(color=GREEN if worse_below else AMBER, value=it.amber),
        *([] if worse_below else [Threshold(color=RED, value=it.red)]),
    ]
    return (
        stat.Panel()
        .title(it.title)
        .description(it.about)
        .datasource(SOURCE)
        .unit(it.unit)
        .no_value("-")
        .height(4)
        .span(4)
        .graph_mode(BigValueGraphMode.AREA)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_mode(BigValueColorMode.VALUE)
        .thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
        .with_target(prometheus.Dataquery().expr(it.expr).ref_id("A").legend_format(it.title).range())
    )


def graph(it: Graph) -> timeseries.Panel:
    panel = (
        timeseries.Panel()
        .title(it.title)
        .description(it.about)
        .datasource(SOURCE)
        .unit(it.unit)
        .min(0)
        .height(8)
        .span(12)
        .fill_opacity(10)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    )
    for name, query in zip("ABCDEF", it.queries, strict=False):
        panel = panel.with_target(
            prometheus.Dataquery().expr(query.expr).ref_id(name).legend_format(query.legend).range()
        )
    return panel


def made() -> str:
    """The dashboard as JSON."""
    board = (
        dashboard.Dashboard("Hubbub")
        .uid("hubbub")
        .description("What waits for people, what calls cost, and how the hub is.")
        .tags(["hubbub", "mcp"])
        .readonly()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
    )
    ids = itertools.count(1)
    for each in NUMBERS:
        board = board.with_panel(number(each).id(next(ids)))
    for title, graphs in ROWS.items():
        board = board.with_row(dashboard.Row(title).id(next(ids)))
        for each in graphs:
            board = board.with_panel(graph(each).id(next(ids)))
    return json.dumps(board.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(made())
    sys.stdout.write(f"{FILE} written\n")
