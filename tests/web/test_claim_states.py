"""The table of states and events by which the page knows whose claim a question has; no browser."""

import json
from typing import Any

import pytest

from .test_static import node, ran

__all__ = ["node"]

STATES = {"unknown", "mine", "theirs", "elsewhere", "over", "gone"}
EVENTS = {"granted", "refused", "own", "silent", "other", "news", "back", "tick", "wanted", "closed", "left"}


@pytest.fixture(scope="module")
def table(node: str) -> dict[tuple[str, str], tuple[str, str | None, bool]]:
    """What follows each state and event, as the page's own module says: state, effect, whether answers are hindered."""
    program = f"""
    const {{ transition, blocksAnswer }} = await import(`${{JS}}/claim.js`);
    const found = [];
    for (const state of {json.dumps(sorted(STATES))}) for (const event of {json.dumps(sorted(EVENTS))}) {{
      const next = transition(state, event);
      found.push([state, event, next.state, next.effect, blocksAnswer(next.state)]);
    }}
    console.log(JSON.stringify(found));
    """
    return {(state, event): (next_, effect, no) for state, event, next_, effect, no in ran(node, program)}


def test_every_event_leads_from_every_state_to_a_state(table: Any) -> None:
    assert {next_ for next_, _, _ in table.values()} == STATES


def test_only_a_refusal_that_says_who_hinders_an_answer(table: Any) -> None:
    for (state, event), (_, _, hindered) in table.items():
        before = state in ("theirs", "elsewhere")
        assert hindered <= (before or event in ("refused", "own")), (state, event)
    for state in ("unknown", "mine"):
        for event in ("silent", "news", "back", "tick", "other"):
            assert not table[state, event][2]


def test_what_was_not_heard_is_asked_again_and_at_once_when_the_hub_is_back(table: Any) -> None:
    for state in ("unknown", "mine", "theirs", "elsewhere"):
        assert table[state, "silent"][1] == "again"
        assert table[state, "back"][1] == "ask"
        assert table[state, "tick"][1] == "ask"


def test_nothing_is_claimed_after_the_end_and_what_comes_after_leaving_is_given_back(table: Any) -> None:
    for event in EVENTS:
        assert table["over", event][1] is None
        assert table["gone", event][0] == "gone"
        assert table["gone", event][1] == ("release" if event in ("granted", "silent") else None)
    for state in ("unknown", "mine"):
        assert table[state, "left"] == ("gone", "release", False)


def test_only_the_person_takes_over_and_only_from_themselves(table: Any) -> None:
    takes = {(state, event) for (state, event), (_, effect, _) in table.items() if effect == "take"}
    assert takes == {("elsewhere", "wanted")}
