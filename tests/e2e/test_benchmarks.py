"""The benchmarks run, and say of each goal whether it is met; what they measure is nothing for a test."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_every_part_of_the_benchmarks_runs_and_has_figures(tmp_path: Path) -> None:
    file, no_rivals = tmp_path / "figures.json", os.environ | {"HUBBUB_PEERS": str(tmp_path)}
    command = [sys.executable, BENCHMARKS / "run.py", "--least", "--rivals", "--json", file]
    subprocess.run(command, env=no_rivals, check=True)
    found = json.loads(file.read_text())
    assert found.pop("machine")["processors"]
    assert {row["way"] for row in found["goals"] if row["note"] == "not installed"} == {"fastmcp", "mcp-proxy", "envoy"}
    assert [part for part, rows in found.items() if not rows] == []
    held = [row for rows in found.values() for row in rows if row.get("goal") is not None]
    assert held
    assert [row for row in held if row["met"] != is_met(row)] == []


def is_met(row: dict[str, Any]) -> bool:
    """More is better where calls per second are compared, and less is everywhere else."""
    value = row["value"] if row.get("ratio") is None else row["ratio"]
    return value >= row["goal"] if row.get("unit") == "/s" else value <= row["goal"]
