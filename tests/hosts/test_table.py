"""The table of hosts in the documents is what their tour came to, with the versions that it is run with."""

import json
from pathlib import Path

import pytest

from .real import results
from .real.known import KNOWN
from .real.programs import LOGGING_IN, PROGRAMS
from .real.results import Outcome
from .real.tour import DIALOG, STOPS, WRONG_TOKEN

PINNED = Path(__file__).parents[1] / "peers"
MOST_WORDS = 450
"""About 35 for each program."""
TITLES = {program.name: program.title for program in PROGRAMS}


def test_the_document_has_the_table_of_the_results() -> None:
    assert results.read_table() == results.make_table(results.read_results(), TITLES)
    assert len(results.read_table().split()) <= MOST_WORDS


def pinned_versions(peers: str) -> set[str]:
    """The versions of all that is installed for a program."""
    of_python = PINNED / f"{peers}.txt"
    if of_python.exists():
        return {line.partition("==")[2] for line in of_python.read_text().splitlines()}
    manifest = json.loads((PINNED / peers / "package.json").read_text())
    return {*manifest["dependencies"].values(), *manifest.get("optionalDependencies", {}).values()}


def test_the_results_are_those_of_every_stop_with_the_versions_that_are_pinned() -> None:
    seen = results.read_results()
    for program in PROGRAMS:
        assert seen[program.name]["version"] in pinned_versions(program.peers), program.name
        for over in program.over:
            dialog = [DIALOG] if program.dialog else []
            assert set(seen[program.name][over]) == {*STOPS, WRONG_TOKEN, *dialog}, program.name


def test_all_that_log_in_were_seen_to_call_and_to_lose_the_log_in_with_the_versions_that_are_pinned() -> None:
    seen = results.read_results()
    assert {name for name, each in seen.items() if results.LOG_IN in each} == {each.name for each in LOGGING_IN}
    for program in LOGGING_IN:
        assert seen[program.name]["version"] in pinned_versions(program.peers), program.name
        stops = seen[program.name][results.LOG_IN]
        assert stops.keys() >= {"log-in", "call", "revoked"}, program.name
        assert stops["log-in"] == stops["call"] == "works", program.name


def test_whatever_fails_is_known_and_whatever_is_known_fails() -> None:
    fails = {
        (program, over, stop)
        for program, seen in results.read_results().items()
        for over in (*results.WAYS, results.LOG_IN)
        for stop, outcome in seen.get(over, {}).items()
        if outcome == "fails"
    }
    assert fails == {(each.program, over, stop) for each in KNOWN for over in each.over for stop in each.stops}


@pytest.mark.parametrize(
    ("program", "stop", "works", "wrong"),
    [
        ("codex", "text", True, ""),
        ("codex", "text", False, "it heard nothing"),
        ("codex", "new server", False, ""),
        ("codex", "new server", True, "it works now: remove it from known.py"),
    ],
)
def test_an_outcome_is_wrong_if_it_is_not_as_it_is_known(program: str, stop: str, works: bool, wrong: str) -> None:
    assert Outcome(program, "1", "http", stop, works, "it heard nothing").wrong == wrong


def test_the_table_names_what_does_not_work_once_counts_the_rest_and_marks_who_logs_in() -> None:
    stops = {"text": "works", "new server": "fails"}
    log_in = {"log-in": "works", "call": "works"}
    seen = {
        "codex": {"version": "1.2", "http": stops, "bridge": stops},
        "inspector": {"version": "3", "http": {"text": "works"}, "log-in": log_in},
        "mcp-remote": {"version": "4", "http": {"text": "works"}, "log-in": {**log_in, "call": "fails"}},
    }
    titles = {"codex": "Codex", "inspector": "Inspector", "mcp-remote": "mcp-remote"}
    _, _, codex, inspector, remote = results.make_table(seen, titles).splitlines()
    known = results.find_known("codex", "http", "new server")
    assert known is not None
    assert codex == f"| Codex | 1.2 | 1 of 2 | 1 of 2 | {known.sentence} |"
    assert inspector == r"| Inspector\* | 3 | all | - |  |"
    assert remote == "| mcp-remote | 4 | all | - | call: not explained yet |"
