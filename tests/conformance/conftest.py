"""A hub as the server under test of the public suite."""

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from ..e2e.conftest import start_shared_hub
from ..token_proxy import adding_token

__all__ = ["start_shared_hub"]

SUITE_LIMIT_S = 150

HOST_ALONE = {
    "profiles": {"default": {"questions": dict.fromkeys(("form", "url", "sampling", "roots"), "host")}},
}
"""The host alone is asked, and servers get its capabilities, as if nobody were in between."""

Checks = dict[str, list[dict[str, Any]]]
"""What the suite found, by scenario."""


@dataclass(frozen=True)
class Suite:
    """The public suite, for servers."""

    command: Sequence[str]
    kept: Path

    async def run(self, url: str, revision: str) -> Checks:
        """Everything that a revision has for servers, required or not."""
        return await self._checks(url, "--requirements", revision)

    async def one(self, url: str, revision: str, scenario: str) -> list[dict[str, Any]]:
        """What the suite found in one scenario."""
        return (await self._checks(url, "--scenario", scenario, "--spec-version", revision, "--force"))[scenario]

    async def _checks(self, url: str, *chosen: str) -> Checks:
        kept = Path(mkdtemp(dir=self.kept))
        with anyio.fail_after(SUITE_LIMIT_S):
            command = [*self.command, "server", "--url", url, *chosen, "-o", str(kept)]
            await anyio.run_process(command, check=False, stderr=subprocess.STDOUT)
        found: Checks = {}
        for checks in kept.glob("*/checks.json"):
            named = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z", checks.parent.name)
            assert named is not None, checks
            found[named[1]] = json.loads(checks.read_text())
        return found


def required_scenarios(command: Sequence[str], side: str, revision: str) -> list[str]:
    """Return what the suite requires of a client or a server of a revision."""
    words = [*command, "list", f"--{side}", "--requirements", revision]
    listed = subprocess.run(words, capture_output=True, check=True, text=True, timeout=SUITE_LIMIT_S).stdout
    required = re.search(rf"^{side.capitalize()} scenarios.*\n((?:  - .*\n)+)", listed, re.MULTILINE)
    assert required is not None, listed
    return re.findall(r"- (\S+)", required[1])


def complaints(checks: Sequence[dict[str, Any]]) -> list[str]:
    """What the suite has against a server, warnings included."""
    assert any(check["status"] == "SUCCESS" for check in checks), checks
    wrong = [check for check in checks if check["status"] in ("FAILURE", "WARNING")]
    return [f"{check['status']} {check['id']}: {check.get('errorMessage')}" for check in wrong]


@pytest.fixture(scope="module")
def suite(conformance_command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """The public suite."""
    return Suite(conformance_command, tmp_path_factory.mktemp("checks"))


@pytest.fixture(scope="module")
def conformance_peer(shared_http_peer: Callable[..., Any], peer_scripts: Path) -> str:
    """The URL of a server that passes all of the suite by itself."""
    return f"{shared_http_peer([sys.executable, str(peer_scripts / 'conformance_server.py'), 'http']).url}/mcp"


@pytest.fixture(scope="module")
async def endpoint(start_shared_hub: Callable[..., Awaitable[Any]]) -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """The URL of a hub's endpoint for one server, where no token is needed: `await endpoint(url, revision)`."""
    async with AsyncExitStack() as stack:

        async def start(url: str, revision: str) -> str:
            server = {"url": url, "protocol": revision, "max_in_flight": 16, "roots": "ask"}
            hub = await start_shared_hub({"tested": server}, hub={"mcp_listen": "127.0.0.1:0"}, mcp=HOST_ALONE)
            await hub.connected("tested")
            await hub.client.catalog.refresh("tested")
            token = json.loads((hub.data_dir / "client.json").read_text())["token"]
            served = urlsplit(hub.ready["mcp"])
            origin = await stack.enter_async_context(adding_token(f"{served.scheme}://{served.netloc}", token))
            return f"{origin}{served.path}/s/tested"

        yield start
