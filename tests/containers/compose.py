"""A file of Compose, run as it is: its services, how they are, and the command line of the hub in one of them."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .images import TREE
from .machine import Machine
from .report import StepFailed, expect

HEALTHY_S = 180
"""So long a start may take, on a machine that does other things too."""
POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a service, as Docker describes it."""

    described: Mapping[str, Any]

    @property
    def state(self) -> Mapping[str, Any]:
        """Whether it runs, since when, how it ended, and its health."""
        return self.described["State"]

    @property
    def health(self) -> str:
        """What it says of its health; `running` if nothing is asked of it."""
        return self.state.get("Health", {}).get("Status", self.state["Status"])

    @property
    def seconds_to_healthy(self) -> float:
        """From its start until a check of its health was passed first."""
        began = _instant(self.state["StartedAt"])
        # Those of its life before are among them, too.
        passed = [_instant(each["End"]) for each in self.state["Health"]["Log"] if each["ExitCode"] == 0]
        return min((each - began).total_seconds() for each in passed if each > began)


class Compose:
    """The services of a file."""

    def __init__(self, machine: Machine, file: str, env: Mapping[str, str] | None = None) -> None:
        self.machine = machine
        self._words = ("docker", "compose", "--ansi", "never", "--progress", "quiet", "--file", str(TREE / file))
        self._env = env or {}

    def run(self, *words: str, title: str = "", limit_s: float = 600) -> str:
        """Run a command of Compose."""
        return self.machine.run(*self._words, *words, title=title, env=self._env, limit_s=limit_s)

    def logs(self, *services: str, last: str = "all") -> str:
        """Return what services have logged, without what erases a terminal's line."""
        return self.run("logs", "--no-color", "--no-log-prefix", "--tail", last, *services).replace("\x1b[2K", "")

    def execute(self, service: str, *words: str) -> str:
        """Run a command in a service's container."""
        return self.run("exec", "-T", service, *words, title=f"{service}: {words[0]}", limit_s=120)

    def hubbub(self, service: str, *words: str) -> list[dict[str, Any]]:
        """Run the command line of the hub in a service's container; the objects that it prints."""
        shown = self.execute(service, "hubbub", "--json", *words)
        return [json.loads(line) for line in shown.splitlines() if line.startswith("{")]

    def host(self, service: str) -> Sequence[str]:
        """Return the command with which a host on this machine starts the hub's bridge."""
        return self.machine.inside(*self._words, "exec", "-T", service, "hubbub", "mcp", env=self._env)

    def container(self, service: str) -> Container:
        """Describe a service's container."""
        name = self.run("ps", "--all", "--quiet", service).strip()
        expect(bool(name), f"{service} has no container")
        return Container(json.loads(self.machine.run("docker", "inspect", name))[0])

    def wait_healthy(self, *services: str, restarts: int = 0) -> None:
        """Wait until the services are healthy, after so many restarts by Docker. Raise StepFailed if one is not."""
        began, said = time.monotonic(), 0.0
        while True:
            found = {service: self.container(service) for service in services}
            late = {
                name: each.health
                for name, each in found.items()
                if each.health not in {"healthy", "running"} or each.described["RestartCount"] < restarts
            }
            if not late:
                return
            passed = time.monotonic() - began
            if passed > HEALTHY_S:
                raise StepFailed(f"not healthy after {HEALTHY_S} s: {late}: {self.logs(*late, last='8')}")
            if passed - said > 5:
                said = passed
                print(f"  {', '.join(f'{name} is {how}' for name, how in late.items())}: {passed:.0f} s", flush=True)
            time.sleep(POLL_S)

    def megabytes(self, service: str) -> float:
        """Return the memory of a service's container, without its cache of files."""
        name = self.container(service).described["Id"]
        shown = json.loads(self.machine.run("docker", "stats", "--no-stream", "--format", "json", name))
        used = shown["MemUsage"].split(" / ")[0]
        return float(used.rstrip("KMGiB")) * {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}[used.lstrip("0123456789.")]

    def down(self) -> None:
        """Take all down, with its volumes."""
        self.run("down", "--volumes", "--remove-orphans", "--timeout", "10", title="all is taken down")


def _instant(text: str) -> datetime:
    """Read a time of Docker's, which has nine digits of a second."""
    whole, _, rest = text.partition(".")
    digits = rest.rstrip("Z").partition("+")[0][:6].ljust(6, "0")
    return datetime.fromisoformat(f"{whole}.{digits}+00:00")
