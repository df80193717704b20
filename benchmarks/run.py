"""What the hub costs, measured here and now: tables on stdout, and every figure in a file with --json.

README.md beside this file says what each figure means.
"""

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import upkeep
from access import Way, ways
from calls import Compared, compare
from questions import Asked, ask
from rich import box
from rich.console import Console
from rich.table import Table
from stalled import READING, Late, late
from start import Started, start

PARTS = ("start", "calls", "access", "questions", "watchers", "loop", "store")
QUICK = 4

console = Console(width=160)


async def main(options: argparse.Namespace) -> None:
    """Measures the parts that were asked for, one after the other."""
    less = QUICK if options.quick else 1
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="hubbub-bench-") as folder:
        for part in options.parts or PARTS:
            directory = Path(folder) / part
            (directory / "idle").mkdir(parents=True)
            rows: Sequence[Any]
            match part:
                case "start":
                    rows = await start(directory, rounds=max(12 // less, 5))
                    _show_starts(rows)
                case "calls":
                    rows = await _calls(directory, options.servers, less)
                case "access":
                    rows = await ways(directory, rounds=8, calls=400 // less)
                    _show_ways(rows)
                case "questions":
                    rows = await ask(directory, rounds=3, questions=100 // less)
                    _show_questions(rows)
                case "watchers":
                    rows = await late(directory, rounds=3, changes=40 // less)
                    _show_late(rows)
                case "loop":
                    rows = await upkeep.loop(directory, calls=8000 // less, idle_s=20 / less)
                    _show_figures("The loop", rows)
                case _:
                    rows = await upkeep.store(directory, commits=200 // less, calls=10_000 // less)
                    _show_figures("The store", rows)
            found[part] = [row.to_json() for row in rows]
    if options.json:
        machine = {"processors": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}
        options.json.write_text(json.dumps({"machine": machine, **found}, indent=2) + "\n")


async def _calls(directory: Path, servers: str, less: int) -> list[Compared]:
    columns = (
        "in flight",
        "throughput",
        "at best",
        "added",
        "empty RPC",
        "direct",
        "p95",
        "hub",
        "p95",
        "direct",
        "hub",
    )
    table = _table("Calls", "server", *columns, "hub's CPU")
    rows: list[Compared] = []
    async for row in compare(directory, only=servers, rounds=8, calls=400 // less):
        rows.append(row)
        table.add_row(
            row.server,
            str(row.in_flight),
            f"{row.rate_ratio:.2f} x",
            f"{row.best_ratio:.2f} x",
            f"{row.added_ms:+.2f} ms",
            *(
                f"{value:.2f} ms"
                for value in (
                    row.empty_median_ms,
                    row.direct_median_ms,
                    row.direct_p95_ms,
                    row.hub_median_ms,
                    row.hub_p95_ms,
                )
            ),
            f"{row.direct_rate:.0f} /s",
            f"{row.hub_rate:.0f} /s",
            f"{row.hub_cpu_ms:.2f} ms",
        )
    console.print(table)
    return rows


def _show_starts(rows: Sequence[Started]) -> None:
    table = _table("Processor time of a start", "what", "CPU", "beside", "its CPU", "ratio", "more")
    for row in rows:
        values = (f"{row.cpu_ms:.0f} ms", row.beside, f"{row.beside_ms:.0f} ms", f"{row.ratio:.2f} x")
        table.add_row(row.what, *values, f"{row.cpu_ms - row.beside_ms:+.0f} ms")
    console.print(table)


def _show_ways(rows: Sequence[Way]) -> None:
    table = _table("Calls by who makes them", "way", "in flight", "median", "rate", "share")
    for row in rows:
        values = (f"{row.median_ms:.2f} ms", f"{row.rate:.0f} /s", f"{row.ratio:.2f} x")
        table.add_row(row.way, str(row.in_flight), *values)
    console.print(table)


def _show_questions(rows: Sequence[Asked]) -> None:
    table = _table("From a server's question to the end of its call", "server", "way", "median", "p95", "ratio", "CPU")
    for row in rows:
        values = (f"{row.median_ms:.2f} ms", f"{row.p95_ms:.2f} ms", f"{row.ratio:.2f} x", f"{row.hub_cpu_ms:.2f} ms")
        table.add_row(row.server, row.way, *values)
    console.print(table)


def _show_late(rows: Sequence[Late]) -> None:
    title = f"From the end of a call to {READING} watchers who read"
    table = _table(title, "beside them, stalled", "median", "p99", "median, share", "p99, share")
    for row in rows:
        shares = (row.median_ms / rows[0].median_ms, row.p99_ms / rows[0].p99_ms)
        values = (f"{row.median_ms:.1f} ms", f"{row.p99_ms:.1f} ms", *(f"{share:.2f} x" for share in shares))
        table.add_row(str(row.stalled), *values)
    console.print(table)


def _show_figures(title: str, rows: Sequence[upkeep.Figure]) -> None:
    table = _table(title, "what", "figure")
    for row in rows:
        table.add_row(row.name, f"{row.value:.2f} {row.unit}")
    console.print(table)


def _table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.MARKDOWN)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures what the hub costs.")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="what to measure; everything if none is named")
    parser.add_argument("--servers", default="", metavar="PART", help="only servers whose name contains this")
    parser.add_argument("--quick", action="store_true", help="a quarter of the work, with figures to match")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write every figure")
    return parser.parse_args()


if __name__ == "__main__":
    anyio.run(main, _options())
