"""What the hub costs, measured here and now: tables on stdout, and every figure in a file with --json.

README.md beside this file says what each figure means.
"""

import argparse
import json
import logging
import os
import platform
import signal
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol, cast, runtime_checkable

import access
import anyio
import approvals
import backlog
import calls
import fleet
import flood
import goals
import held
import history
import hosts
import many
import postgres
import questions
import rivals
import stalled
import start
import stream
import telemetry
import upkeep
import watchers
from forwarded import FORWARDED
from measure import Figure
from rich import box
from rich.console import Console
from rich.table import Table

WHOLE, QUICK, LEAST = 1, 4, 100
"""What the number of calls is divided by."""
PART_LIMIT_S = 900
"""A part that takes longer hangs."""

UNITS = {"ms": "ms", "us": "µs", "ratio": "x", "rate": "/s"}
"""Of a row's fields, by the last part of their names."""

console = Console(width=160)


@dataclass(frozen=True, slots=True)
class Run:
    """One part's own folder, how much it is to do, and where it may say how far it is."""

    directory: Path
    options: argparse.Namespace
    say: Callable[[str], None]

    def scale(self, whole: int) -> int:
        """How many of what the whole run has `whole` of this run has; at least one."""
        return max(whole // self.options.less, 1)

    @property
    def only_tried(self) -> bool:
        """Whether nothing is measured: it is only tried whether everything runs."""
        return self.options.less == LEAST

    def rounds(self, whole: int) -> int:
        """How many rounds this run has: `whole`, as each does less; but one where nothing is measured."""
        return 1 if self.only_tried else whole


@runtime_checkable
class RowWithDerivedFigures(Protocol):
    """A row of a table that has more than its fields."""

    def to_json(self) -> dict[str, Any]: ...


Row = Any
"""A row of a table: a dataclass of figures, perhaps a RowWithDerivedFigures."""


def row_json(row: Row) -> dict[str, Any]:
    """All figures of a row."""
    return row.to_json() if isinstance(row, RowWithDerivedFigures) else asdict(row)


async def _run_goals(run: Run) -> Sequence[Row]:
    options = run.options
    against = [*rivals.RIVALS] if options.rivals else []
    rounds, calls, most_s = run.rounds(4), run.scale(400), 4 / options.less
    return await goals.compare(
        run.directory, rounds=rounds, calls=calls, most_s=most_s, against=against, base=options.base
    )


async def _run_hosts(run: Run) -> Sequence[Row]:
    options = run.options
    against = [*rivals.RIVALS] if options.rivals else []
    rounds, calls, most_s = run.rounds(4), run.scale(400), 4 / options.less
    return await hosts.compare_hosts(run.directory, rounds=rounds, calls=calls, most_s=most_s, against=against)


async def _run_fleet(run: Run) -> Sequence[Row]:
    forwarded = await fleet.measure_forwarding(run.directory, rounds=run.rounds(8), calls=run.scale(400))
    return [*forwarded, *await fleet.measure_listening(run.directory, calls=run.scale(2000))]


async def _run_flood(run: Run) -> Sequence[Row]:
    seconds = 0.2 if run.only_tried else max(10 / run.options.less, 2)
    return await flood.measure_floods(run.directory, rounds=run.scale(3), seconds=seconds)


async def _run_history(run: Run) -> Sequence[Row]:
    count = 1_000_000 if run.options.less == WHOLE else run.scale(80_000)
    return await history.measure_history(run.directory, calls=count, say=run.say)


PARTS: Mapping[str, tuple[str, Callable[[Run], Awaitable[Sequence[Row]]]]] = {
    "goals": ("Through the hub, and directly", _run_goals),
    "hosts": ("Through the endpoint for hosts, and directly", _run_hosts),
    "crowds": (
        "Many hosts, and long lists",
        lambda run: hosts.measure_crowds(run.directory, sessions=run.scale(100), lists=run.scale(200)),
    ),
    "start": (
        "Processor time of a start",
        lambda run: start.start(run.directory, rounds=run.scale(12), warm=not run.only_tried),
    ),
    "calls": (
        "Calls of servers that only answer",
        lambda run: calls.compare_calls(
            run.directory, only=run.options.servers, rounds=run.rounds(8), calls=run.scale(400)
        ),
    ),
    "stream": (
        "Calls by how they are made",
        lambda run: stream.ways(run.directory, rounds=run.rounds(4), calls=run.scale(1000)),
    ),
    "access": (
        "Calls by who makes them",
        lambda run: access.compare_access(run.directory, rounds=run.rounds(8), calls=run.scale(400)),
    ),
    "fleet": ("Calls at another member of a fleet", _run_fleet),
    "approvals": (
        "Calls that rules judge",
        lambda run: approvals.measure_approvals(run.directory, rounds=run.rounds(8), calls=run.scale(400)),
    ),
    "held": ("Many calls that wait for approval", lambda run: held.measure_held(run.directory, calls=run.scale(1000))),
    "telemetry": (
        "Calls through hubs with telemetry",
        lambda run: telemetry.compare(run.directory, rounds=run.rounds(6), calls=run.scale(200), base=run.options.base),
    ),
    "questions": (
        "From a server's question to the end of its call",
        lambda run: questions.measure_questions(run.directory, rounds=run.rounds(3), questions=run.scale(100)),
    ),
    "watchers": (
        f"From a change to {watchers.WATCHERS} watchers",
        lambda run: watchers.tell(run.directory, rounds=run.rounds(4), changes=run.scale(100)),
    ),
    "backlog": (
        "With many open questions",
        lambda run: backlog.measure_backlog(run.directory, most=run.scale(10_000), answers=run.scale(200)),
    ),
    "flood": ("Calls of one server while another floods", _run_flood),
    "stalled": (
        f"From the end of a call to {stalled.READING} watchers who read",
        lambda run: stalled.late(run.directory, rounds=run.scale(3), changes=run.scale(40)),
    ),
    "many": ("Many servers", lambda run: many.measure_many(run.directory, rounds=run.scale(3), less=run.options.less)),
    "loop": ("The loop", lambda run: upkeep.loop(run.directory, calls=run.scale(8000), idle_s=20 / run.options.less)),
    "store": ("The store", lambda run: upkeep.store(run.directory, commits=run.scale(200), calls=run.scale(10_000))),
    "postgres": (
        "The store in PostgreSQL, and at two members",
        lambda run: postgres.compare_stores(run.directory, rounds=run.rounds(4), commits=run.scale(400)),
    ),
    "history": ("With the calls that there have been", _run_history),
}
"""The title of each, and what measures it. Rows are figures, or have a field for each column."""


async def main(options: argparse.Namespace) -> int:
    """Measures the parts that were asked for, one after the other, and shows a table of each.

    A part that fails does not keep the others from being measured. Returns the exit status: 1 if one has failed.
    """
    logging.getLogger("mcp").setLevel(logging.ERROR)  # not each session can be ended through each rival
    parts = options.parts or [*PARTS]
    about = describe_machine()
    rows_by_part: dict[str, Any] = {"machine": about}
    processors, python, load = about["processors"], about["python"], about["load"]
    console.print(f"{processors} processors, Python {python}, a load of {load:.1f} from other work\n")
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="hubbub-bench-") as folder:
        for number, part in enumerate(parts):
            if interrupted:  # what awaited the end of its work within a part may have swallowed the cancellation
                raise KeyboardInterrupt
            directory = Path(folder) / part
            directory.mkdir()
            try:
                rows = await _measure_part(part, f"{part}, {number + 1} of {len(parts)}", directory, options)
            except Exception:
                traceback.print_exc()
                console.print(f"{part} has FAILED\n")
                continue
            show_table(PARTS[part][0], rows)
            console.print(f"{part}: {monotonic() - began:.0f} s so far\n", style="dim")
            rows_by_part[part] = [row_json(row) for row in rows]
            if options.json:
                options.json.write_text(json.dumps(rows_by_part, indent=2) + "\n")
    return 0 if all(part in rows_by_part for part in parts) else 1


async def _measure_part(part: str, place: str, directory: Path, options: argparse.Namespace) -> Sequence[Row]:
    """The rows of a part. Its place is shown on a terminal until then, so that it does not mix with the tables."""
    with Console(stderr=True).status(place) as status, anyio.fail_after(PART_LIMIT_S):
        return await PARTS[part][1](Run(directory, options, lambda far: status.update(f"{place}: {far}")))


def describe_machine() -> dict[str, Any]:
    """Where the figures are from."""
    return {
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.system(),
        "load": os.getloadavg()[0],
    }


def show_table(title: str, rows: Sequence[Row]) -> None:
    """Prints the table of a part."""
    if all(isinstance(row, goals.Compared) for row in rows):
        _show_goals(title, cast("Sequence[goals.Compared]", rows))
    elif all(isinstance(row, Figure) for row in rows):
        _show_figures(title, cast("Sequence[Figure]", rows))
    else:
        fields = [row_json(row) for row in rows]
        table = _create_table(title, *(_column_heading(name) for name in fields[0]))
        for values in fields:
            table.add_row(*(_format_cell(name, value) for name, value in values.items()))
        console.print(table)


def _column_heading(name: str) -> str:
    """`hub_median_ms` is "hub median"."""
    parts = name.split("_")
    return " ".join(parts[:-1] if len(parts) > 1 and parts[-1] in ("ms", "us") else parts)


def _format_cell(name: str, value: object) -> str:
    unit = UNITS.get(name.rpartition("_")[2], "")
    if isinstance(value, float):
        return f"{value:.0f} {unit}" if abs(value) >= 100 else f"{value:.2f} {unit}"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _show_goals(title: str, rows: Sequence[goals.Compared]) -> None:
    """Prints a table with a column for each way."""
    ways = list(dict.fromkeys(row.way for row in sorted(rows, key=_sort_key)))
    table = _create_table(title, "what", "goal", "", *ways)
    cells = {(row.transport, row.what, row.way): row for row in rows}
    for transport, what in dict.fromkeys((row.transport, row.what) for row in rows):
        ratios = [cells.get((transport, what, way)) for way in ways]
        with_goal = next((row for row in ratios if row is not None and row.goal is not None), None)
        unit = "ms" if with_goal is None or with_goal.ratio is None else "x"
        goal = _format_goal(with_goal and with_goal.goal, unit)
        table.add_row(f"{transport}, {what}", *goal, *map(_format_ratio, ratios))
    console.print(table)


_WAYS: Final = (goals.DIRECT, goals.HUBBUB, goals.ENDPOINT, goals.BRIDGE, goals.BASE, FORWARDED, *rivals.RIVALS)
"""In the order of their columns."""


def _sort_key(row: goals.Compared) -> int:
    return _WAYS.index(row.way)


def _format_ratio(row: goals.Compared | None) -> str:
    if row is None or row.value is None:
        return "" if row is None else row.note
    value = f"{row.value:.0f} {row.unit}" if row.value >= 100 else f"{row.value:.2f} {row.unit}"
    return value if row.ratio is None or row.way == goals.DIRECT else f"{row.ratio:.2f} x, {value}"


def _format_goal(figure: Figure | None, unit: str) -> tuple[str, str]:
    if figure is None or figure.goal is None:
        return "", ""
    return f"{'≥' if figure.at_least else '≤'} {figure.goal:g} {unit}", "met" if figure.met else "NOT met"


def _show_figures(title: str, rows: Sequence[Figure]) -> None:
    with_goals = any(row.goal is not None for row in rows)
    table = _create_table(title, "what", "figure", *(("goal", "") if with_goals else ()))
    for row in rows:
        goal = _format_goal(row, row.unit) if with_goals else ()
        table.add_row(row.name, f"{row.value:.2f} {row.unit}", *goal)
    console.print(table)


def _create_table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.MARKDOWN)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures what the hub costs.")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="what to measure; everything if none is named")
    parser.add_argument("--servers", default="", metavar="PART", help="`calls`: only servers whose name contains this")
    parser.add_argument("--rivals", action="store_true", help="`goals`: beside what else stands before servers")
    parser.add_argument("--base", type=Path, metavar="DIR", help="`goals`, `telemetry`: beside the hub of a checkout")
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument(
        "--quick", dest="less", action="store_const", const=QUICK, help="a quarter of the work, with figures to match"
    )
    effort.add_argument(
        "--least", dest="less", action="store_const", const=LEAST, help="next to no work: do all parts still run?"
    )
    parser.set_defaults(less=WHOLE)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write every figure")
    options = parser.parse_args()
    if options.base and not (options.base / "hub" / "hubbubd").is_dir():
        parser.error(f"{options.base} is no checkout of the hub")
    return options


def run_command() -> int:
    """Does what the command line says. SIGTERM ends it as Ctrl-C does, and with it all processes."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it runs in the background
    try:
        status = anyio.run(main, _parse_options())
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 128 + signal.SIGINT if interrupted else status


interrupted: list[int] = []
"""The signals that are to end the benchmarks."""


def _interrupt(number: int, _frame: object) -> None:
    interrupted.append(number)
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.exit(run_command())
