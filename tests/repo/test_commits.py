"""The rule for subjects of commits, and the hook that holds to it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .commits import wrong

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "subject",
    [
        "Refuse a stale revision by name",
        "Pass the token on",
        "Embed one JSON document",
        "Bring the hook along",
        "Feed the watch from the table",
        "Merge branch 'a very long name of a branch that nobody could have cut any shorter than it is'",
        'Revert "Added a thing."',
        "A" * 72,
    ],
)
def test_a_good_subject_is_taken(subject: str) -> None:
    assert list(wrong(subject)) == []


@pytest.mark.parametrize(
    ("subject", "problem"),
    [
        ("A" * 73, "has 73 characters"),
        ("refuse a stale revision", "capital letter"),
        ("", "capital letter"),
        ("Added a thing", "imperative"),
        ("Adds a thing", "imperative"),
        ("Adding: a thing", "imperative"),
        ("Refuse a thing.", "full stop"),
        ("Refuse a thing; take another", "two commits"),
    ],
)
def test_a_bad_subject_is_refused_with_its_reason(subject: str, problem: str) -> None:
    assert any(problem in each for each in wrong(subject))


@pytest.fixture
def checkout(processes: None, tmp_path: Path) -> Path:
    """A repository with nothing but the rules."""
    rules = tmp_path / "tests/repo/commits.py"
    rules.parent.mkdir(parents=True)
    shutil.copy(ROOT / "tests/repo/commits.py", rules)
    git(tmp_path, "init", "-q")
    return tmp_path


def git(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    of_nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | of_nobody
    return subprocess.run(
        ["git", *who, *words], cwd=place, env=clean, capture_output=True, text=True, check=False, timeout=60
    )


def rules(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(place / "tests/repo/commits.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_installed_hook_refuses_a_commit_and_takes_one(checkout: Path) -> None:
    assert rules(checkout, "install").returncode == 0
    refused = git(checkout, "commit", "--allow-empty", "-m", "Added a thing")
    assert refused.returncode != 0
    assert "is not in the imperative: 'Added'" in refused.stderr
    assert (
        git(checkout, "commit", "--allow-empty", "-m", "Add a thing\n\nAdded for a reason; and another.").returncode
        == 0
    )


def test_a_hook_of_the_user_s_own_stays(checkout: Path) -> None:
    own = checkout / ".git/hooks/commit-msg"
    own.parent.mkdir(exist_ok=True)
    own.write_text("#!/bin/sh\n")
    rules(checkout, "install")
    assert own.read_text() == "#!/bin/sh\n"


def test_hooks_that_the_user_keeps_elsewhere_stay_as_they_are(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("hooks")
    git(checkout, "config", "core.hooksPath", str(elsewhere))
    rules(checkout, "install")
    assert list(elsewhere.iterdir()) == []


def test_a_branch_is_looked_at_as_a_whole(checkout: Path) -> None:
    git(checkout, "commit", "--allow-empty", "-m", "Add a thing")
    assert rules(checkout).returncode == 0
    git(checkout, "commit", "--allow-empty", "-m", "Adds a thing")
    assert rules(checkout).returncode == 1
