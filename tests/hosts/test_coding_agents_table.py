"""The table of coding agents in the documents is what came of trying them, with the versions that are pinned."""

from hubbub_local.coding_agents import AGENTS

from .acp import trials
from .acp.coders import CODERS
from .acp.stops import LOG_IN, STOPS
from .acp.trials import Trial
from .test_table import pinned_versions

NAMES = [coder.name for coder in CODERS]


def test_the_document_has_the_table_of_the_results() -> None:
    assert trials.read_table() == trials.make_table(trials.read_results(), NAMES)


def test_the_results_are_those_of_all_that_is_tried_with_the_versions_that_are_pinned() -> None:
    seen = trials.read_results()
    for coder in CODERS:
        assert seen[coder.name]["version"] in pinned_versions(coder.program.peers), coder.name
        log_in = [LOG_IN] if coder.keys else []
        assert set(seen[coder.name]["tried"]) == {*STOPS, *log_in}, coder.name


def test_whatever_fails_is_known_and_whatever_is_known_fails() -> None:
    fails = {
        (name, stop)
        for name, seen in trials.read_results().items()
        for stop, came in seen["tried"].items()
        if came == "fails"
    }
    assert fails == set(trials.KNOWN)


def test_what_is_known_to_fail_is_no_surprise_and_all_else_is() -> None:
    ((name, stop), sentence), *_ = trials.KNOWN.items()
    assert Trial(name, "1", stop, "it failed").is_as_known
    assert not Trial(name, "1", stop, "").is_as_known
    assert not Trial(name, "1", "page", "it failed").is_as_known
    seen = {name: {"version": "1", "tried": {stop: "fails", "page": "works"}}}
    row = trials.make_table(seen, [name]).splitlines()[-1]
    assert row == f"| `{name}` | 1 | 1 of 2 | {sentence} |"


def test_what_is_tried_is_what_servers_add_starts() -> None:
    assert {coder.name: coder.started_as for coder in CODERS} == {
        name: agent.command[0] for name, agent in AGENTS.items() if name in NAMES
    }
