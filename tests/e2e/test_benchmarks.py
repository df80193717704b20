"""The benchmarks run, and say of each goal whether it is met; what they measure is nothing for a test."""

import ast
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

from .. import forks
from ..syntax import tree

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
GROUPS = 3
"""How many groups of parts run by themselves, side by side: all of them one after the other take minutes."""


def all_parts() -> list[str]:
    """The names of the parts, as they stand in the table of run.py."""
    assigned = [each for each in tree(BENCHMARKS / "run.py").body if isinstance(each, ast.AnnAssign)]
    (table,) = [each.value for each in assigned if ast.unparse(each.target) == "PARTS"]
    assert isinstance(table, ast.Dict)
    return [ast.literal_eval(name) for name in table.keys if name is not None]


@pytest.mark.parametrize("parts", [all_parts()[first::GROUPS] for first in range(GROUPS)], ids=" ".join)
def test_every_part_of_the_benchmarks_runs_and_has_figures(parts: list[str], tmp_path: Path) -> None:
    file, no_rivals = tmp_path / "figures.json", forks.environment_with_forks() | {"HUBBUB_PEERS": str(tmp_path)}
    options = ["--least", "--rivals", "--json", str(file)]
    command = [sys.executable, "-m", "tests.e2e.forked_benchmarks", *options, *parts]
    ended = subprocess.run(command, cwd=ROOT, env=no_rivals, check=False, stdout=subprocess.PIPE, text=True)
    print(ended.stdout)
    assert re.findall("(.*) has FAILED", ended.stdout) == []
    assert ended.returncode == 0
    found = json.loads(file.read_text())
    assert found.pop("machine")["processors"]
    assert [*found] == parts
    assert [part for part, rows in found.items() if not rows] == []
    held = [row for rows in found.values() for row in rows if row.get("goal") is not None]
    assert [row for row in held if row["met"] != is_met(row)] == []
    if "goals" in parts:
        assert held
        rivals = {row["way"] for row in found["goals"] if row["note"] == "not installed"}
        assert rivals == {"fastmcp", "mcp-proxy", "envoy"}


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
