"""What ships for running the hub: files that the tools they are written for look at, and what the files say."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..e2e.conftest import start_hub
from ..web.conftest import start_bridge

__all__ = ["start_bridge", "start_hub"]

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs/deploy"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: Mapping[str, dict[str, Any]] = COMPOSE["services"]
FLEET = yaml.safe_load((ROOT / "docker-compose.fleet.yml").read_text())
MEMBERS = ("a", "b", "c")
BOARD = json.loads((DEPLOY / "grafana/dashboards/hubbub.json").read_text())
LIMIT_S = 60


def queries() -> list[str]:
    """What the dashboard asks, with a span of time where Grafana puts one."""
    found = [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())]
    return [query.replace("$__rate_interval", "1m") for query in found]


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """Where a program of Debian is: `tool("promtool")`. Tests are skipped where it is missing, but never in CI."""

    def find(name: str) -> str:
        found = shutil.which(name)
        if found is None:
            say = pytest.fail if os.environ.get("CI") else pytest.skip
            say(f"{name} is not installed: run `make deploy-tools` as root, or install it")
        return found

    return find


@pytest.fixture(scope="session")
def schemas() -> Path:
    """The Python that has the schemas of Kubernetes. Its test is skipped where it is missing, but never in CI."""
    found = Path(os.environ.get("HUBBUB_PEERS") or ROOT / ".peers") / "kubernetes/bin/python"
    if not found.exists():
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say(f"{found} is missing: run `make deploy-tools`")
    return found


def ran(*command: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """What a command prints that must go well."""
    done = subprocess.run(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def installed(name: str) -> Path:
    """A program of the virtual environment."""
    return Path(sys.executable).parent / name
