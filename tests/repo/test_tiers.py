"""The tiers of the tests: each test is in one of them, each is run, and none says of itself what it is not."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from .. import forks, tiers
from ..forks.client import BIN, address
from ..syntax import tree

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
MAKEFILE = (ROOT / "Makefile").read_text()
HUBBUB = str(BIN / "hubbub")


def test_each_place_and_each_fixture_that_makes_a_tier_is_there() -> None:
    defined = {
        node.name
        for path in TESTS.rglob("*.py")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if any("fixture" in ast.unparse(each) for each in node.decorator_list)
    }
    assert {*tiers.REAL_FIXTURES, *tiers.WHOLE_FIXTURES} - defined == set()
    places = (*tiers.REAL_PLACES, *tiers.WHOLE_PLACES, *tiers.LONGEST)
    assert [place for place in places if not (TESTS / place).exists()] == []


def test_each_golden_test_is_there() -> None:
    absent = {
        f"{place}::{name}"
        for place, names in tiers.GOLDEN.items()
        for name in names - {each.name for each in ast.walk(tree(TESTS / place)) if hasattr(each, "name")}
    }
    assert absent == set()


@pytest.mark.parametrize(
    ("place", "fixtures", "tier"),
    [
        ("core/test_inbox.py", set(), "quick"),
        ("clients/test_cli.py", {"hub", "hubbub"}, "real"),
        ("e2e/test_calls.py", set(), "real"),
        ("e2e/test_crash.py", {"processes"}, "whole"),
        ("web/test_page.py", {"browser", "start_hub"}, "whole"),
        ("deploy/test_packages.py", set(), "whole"),
    ],
)
def test_a_test_is_of_the_slowest_tier_that_its_place_and_its_fixtures_ask_for(
    place: str, fixtures: set[str], tier: str
) -> None:
    assert tiers.tier(TESTS / place, fixtures) == tier


def test_what_make_runs_is_every_tier_and_ci_runs_each_once() -> None:
    recipes = re.findall(r"^([a-z-]+):.*\n\t\S*pytest .*?-m ('[^']+'|\w+)", MAKEFILE, re.MULTILINE)
    chosen = {rule: tier.strip("'") for rule, tier in recipes}
    assert chosen == {
        "quick-tests": "quick",
        "quick-and-golden-tests": "quick or golden",
        "test-rest": "real or whole or hypothesis",
    }
    assert re.search(r"^test:.*\n.* quick-and-golden-tests$", MAKEFILE, re.MULTILINE)
    ran = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line.startswith("make ")]
    assert ran == ["make test", "make test-rest"]


def test_where_make_quick_does_not_look_there_is_no_quick_test() -> None:
    (ignored,) = re.findall(r"addprefix --ignore tests/,([\w ]+)\)", MAKEFILE)
    assert {f"{place}/" for place in ignored.split()} <= {*tiers.REAL_PLACES, *tiers.WHOLE_PLACES}


async def forked() -> None:
    await forks.run([HUBBUB, "--version"])


async def started() -> None:
    subprocess.run([sys.executable, "-S", "-c", ""], check=True)


@pytest.mark.parametrize("start", [forked, started])
@pytest.mark.parametrize("tier", ["quick", "real"])
async def test_a_quick_test_that_starts_a_process_fails(start: Any, tier: str, processes: None) -> None:
    item = SimpleNamespace(get_closest_marker=lambda name: name == tier or None)
    address()  # so that the fork server is not what is started
    next(tiers.pytest_runtest_setup())
    run = tiers.pytest_runtest_call(cast("pytest.Item", item))
    next(run)
    await start()
    if tier == "real":
        with pytest.raises(StopIteration):
            next(run)
        return
    with pytest.raises(pytest.fail.Exception, match="it starts processes"):
        next(run)
