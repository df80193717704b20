"""Workflows of GitHub: what they may do, for how long, and that nobody else can change what they run."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

FILES = sorted((Path(__file__).parents[2] / ".github/workflows").glob("*.yml"))
PINNED = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v[0-9]+(\.[0-9]+)+")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_action_is_pinned_by_its_commit_and_its_version_is_said(path: Path) -> None:
    uses = [line.strip().removeprefix("- ") for line in path.read_text().splitlines() if "uses:" in line]
    assert uses
    assert [each for each in uses if not PINNED.fullmatch(each)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_workflow_may_only_read_and_each_of_its_jobs_ends(path: Path) -> None:
    workflow: dict[str, Any] = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 60 and "permissions" not in job for job in workflow["jobs"].values())


def test_each_python_that_the_package_names_is_tested() -> None:
    root = FILES[0].parents[2]
    named = re.findall(r"Programming Language :: Python :: (3\.\d+)", (root / "pyproject.toml").read_text())
    ci: dict[str, Any] = yaml.safe_load((root / ".github/workflows/ci.yml").read_text())
    assert set(named) <= set(ci["jobs"]["test"]["strategy"]["matrix"]["python"])
