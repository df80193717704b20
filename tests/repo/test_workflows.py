"""Workflows of GitHub: what they may do, for how long, and that nobody else can change what they run."""

import re
import tomllib
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
import yaml

FILES = sorted((Path(__file__).parents[2] / ".github/workflows").glob("*.yml"))
# What jobs need beyond reading, and no more: signing, the token that the index knows the workflow by, a release's page.
MORE = {
    "release.yml": {
        "provenance": {"id-token": "write", "attestations": "write"},
        "publish": {"id-token": "write"},
        "announce": {"contents": "write"},
    }
}
PINNED = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v[0-9]+(\.[0-9]+)+")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_action_is_pinned_by_its_commit_and_its_version_is_said(path: Path) -> None:
    uses = [line.strip().removeprefix("- ") for line in path.read_text().splitlines() if "uses:" in line]
    assert uses
    assert [each for each in uses if not PINNED.fullmatch(each)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_workflow_may_only_read_unless_one_of_its_jobs_must_write_and_each_job_ends(path: Path) -> None:
    workflow: dict[str, Any] = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 60 for job in workflow["jobs"].values())
    more = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
    assert more == MORE.get(path.name, {})


def test_a_release_is_tested_and_checked_before_it_is_built_and_has_no_secret() -> None:
    text = (FILES[0].parent / "release.yml").read_text()
    workflow: dict[Any, Any] = yaml.safe_load(text)
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 takes `on` for true
    runs = [step["run"].split()[1:] for step in workflow["jobs"]["build"]["steps"] if "run" in step]
    assert [words[:2] for words in runs] == [["tests/repo/release.py", "check"], *2 * [["PYTHON=python", ANY]]]
    assert [words[-1] for words in runs] == ['"$GITHUB_REF_NAME"', "test", "dist"]
    assert "secrets." not in text
    assert "cache" not in text.lower().replace("without a cache", "")


def test_nothing_is_published_that_is_not_signed_and_nothing_announced_that_is_not_published() -> None:
    release: dict[str, Any] = yaml.safe_load((FILES[0].parent / "release.yml").read_text())
    needs = {name: job.get("needs") for name, job in release["jobs"].items()}
    assert needs == {
        "build": None,
        "provenance": "build",
        "publish": ["build", "provenance"],
        "announce": "publish",
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_checkout_leaves_its_token_to_what_runs_after_it(path: Path) -> None:
    jobs: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"] if "actions/checkout@" in step.get("uses", "")]
    assert steps
    assert all(step["with"]["persist-credentials"] is False for step in steps)


def test_the_index_has_an_environment_for_each_distribution() -> None:
    """It takes two distributions that are new from one workflow only if their environments differ."""
    root = FILES[0].parents[2]
    release: dict[str, Any] = yaml.safe_load((root / ".github/workflows/release.yml").read_text())
    publish = release["jobs"]["publish"]
    names = [
        tomllib.loads((root / path).read_text())["project"]["name"]
        for path in ("pyproject.toml", "clients/library/pyproject.toml")
    ]
    made = [(each["name"], each["files"]) for each in publish["strategy"]["matrix"]["include"]]
    assert made == [(name, name.replace("-", "_")) for name in names]
    assert publish["environment"] == {"name": "pypi-${{ matrix.name }}"}
    assert all(f"`pypi-{name}`" in (root / "RELEASING.md").read_text() for name in names)


def test_each_python_that_the_package_names_is_tested() -> None:
    root = FILES[0].parents[2]
    named = re.findall(r"Programming Language :: Python :: (3\.\d+)", (root / "pyproject.toml").read_text())
    ci: dict[str, Any] = yaml.safe_load((root / ".github/workflows/ci.yml").read_text())
    assert set(named) <= set(ci["jobs"]["test"]["strategy"]["matrix"]["python"])
