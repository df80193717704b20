"""The benchmarks run, and say of each goal whether it is met; what they measure is nothing for a test."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_every_part_of_the_benchmarks_runs_and_has_figures(tmp_path: Path) -> None:
    file, no_rivals = tmp_path / "figures.json", os.environ | {"HUBBUB_PEERS": str(tmp_path)}
    command = [sys.executable, BENCHMARKS / "run.py", "--least", "--rivals", "--json", file]
    ended = subprocess.run(command, env=no_rivals, check=False, stdout=subprocess.PIPE, text=True)
    print(ended.stdout)
    assert re.findall("(.*) has FAILED", ended.stdout) == []
    assert ended.returncode == 0
    found = json.loads(file.read_text())
    assert found.pop("machine")["processors"]
    assert {row["way"] for row in found["goals"] if row["note"] == "not installed"} == {"fastmcp", "mcp-proxy", "envoy"}
    assert [part for part, rows in found.items() if not rows] == []
    held = [row for rows in found.values() for row in rows if row.get("goal") is not None]
    assert held
    assert [row for row in held if row["met"] != is_met(row)] == []


def test_a_part_that_fails_does_not_keep_the_others_from_being_measured(tmp_path: Path) -> None:
    file, program = (
        tmp_path / "figures.json",
        "import run, sys; run.PARTS['start'] = 'Broken', None; sys.exit(run.run_command())",
    )
    command = [sys.executable, "-c", program, "--least", "--json", file, "start", "store"]
    ended = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(BENCHMARKS)}, stdout=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert "start has FAILED" in ended.stdout
    assert [*json.loads(file.read_text())] == ["machine", "store"]


def test_a_termination_ends_the_benchmarks_with_their_processes(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [sys.executable, BENCHMARKS / "run.py", "loop", "start", "store"],  # more than ends before the signal comes
        env=os.environ | {"TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    try:
        while not [*tmp_path.glob("*/loop/hub/client.json")]:
            assert running.poll() is None
            time.sleep(0.1)
        os.kill(running.pid, signal.SIGTERM)
        assert running.wait() == 128 + signal.SIGINT
        with pytest.raises(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)


def is_met(row: dict[str, Any]) -> bool:
    """More is better where calls per second are compared, and less is everywhere else."""
    value = row["value"] if row.get("ratio") is None else row["ratio"]
    return value >= row["goal"] if row.get("unit") == "/s" else value <= row["goal"]
