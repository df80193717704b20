"""Hosts that are small enough for each run of the tests take the tour of `make hosts`, without its long stops."""

from pathlib import Path

import pytest

from .real.programs import INSPECTOR, MCP_REMOTE, Program, find_version
from .real.results import Outcome
from .real.tour import STOPS, WRONG_TOKEN
from .real.tours import Tour

LONG = {"ticket", "cancel", "SIGTERM", "kill -9 in a call"}


@pytest.mark.parametrize(
    ("program", "over"),
    [(INSPECTOR, "http"), (INSPECTOR, "bridge"), (MCP_REMOTE, "http")],
    ids=lambda each: getattr(each, "name", each),
)
async def test_a_small_host_takes_the_tour(program: Program, over: str, npm_hosts: Path, tmp_path: Path) -> None:
    peers, outcomes = npm_hosts.parent, list[Outcome]()
    stops = [stop for stop in (*STOPS, WRONG_TOKEN) if stop not in LONG]
    await Tour(tmp_path, program, find_version(program, peers), peers, over).run(stops, outcomes.append)
    assert [outcome.stop for outcome in outcomes] == stops
    assert [outcome.line() for outcome in outcomes if outcome.wrong] == []
