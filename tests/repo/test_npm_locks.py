"""Lock files of npm: the newest npm takes them, and the example says which Node it needs."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LISTED = subprocess.run(["git", "ls-files", "*package-lock.json"], cwd=ROOT, capture_output=True, check=True, text=True)
LOCKS = LISTED.stdout.split()


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_what_its_packages_need_on_every_platform(lock: str) -> None:
    packages: dict[str, dict[str, Any]] = json.loads((ROOT / lock).read_text())["packages"]
    names = {path.rpartition("node_modules/")[2] for path in packages}
    needed = {
        name
        for each in packages.values()
        for kind in ("dependencies", "optionalDependencies")
        for name in each.get(kind, ())
    }
    assert not needed - names


def test_npm_refuses_a_node_that_cannot_run_the_example() -> None:
    place = ROOT / "clients/typescript"
    assert json.loads((place / "package.json").read_text())["engines"]["node"]
    assert "engine-strict=true" in (place / ".npmrc").read_text().splitlines()
