"""Both scenarios that the public suite has for authorization servers, with the log-in of a hub as one.

The suite prints an address for a browser, and waits for what comes back. The browser is a script here.
"""

import html
import json
import re
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio.streams.text import TextReceiveStream

from hubbub_client import Hub

from ..ports import reserved
from .conftest import SUITE_LIMIT_S, complaints, start_shared_hub

__all__ = ["start_shared_hub"]

METADATA, GRANT = "authorization-server-metadata-endpoint", "authorization-code-grant"
ADDRESS = re.compile(r"https?://\S+/oauth/authorize\?\S+")


async def allow(http: httpx2.AsyncClient, base: str, code: str, address: str) -> None:
    """Type a code into the hub's page, allow what it asks, and go where it sends the browser."""
    own = {"origin": base}
    entered = await http.post(f"{base}/oauth/enter", data={"code": code}, headers=own)
    assert entered.status_code == 200, entered.text
    page = await http.get(address)
    statement = re.search(r'name="request" value="([^"]*)"', page.text)
    assert statement is not None, page.text
    decision = {"request": html.unescape(statement[1]), "decision": "allow", "days": "1"}
    decided = await http.post(f"{base}/oauth/authorize", data=decision, headers=own)
    assert decided.status_code == 303, decided.text
    await http.get(decided.headers["location"])


async def run_suite(command: Sequence[str], hub: Hub, base: str, kept: Path) -> dict[str, Any]:
    """What the suite found, by scenario."""
    with reserved() as port:
        async with httpx2.AsyncClient(trust_env=False) as http:
            program = {"client_name": "Suite", "redirect_uris": [f"http://127.0.0.1:{port}/callback"]}
            asked = {**program, "token_endpoint_auth_method": "none"}
            registered = (await http.post(f"{base}/oauth/register", json=asked)).json()
            words = ["authorization", "--url", base, "--client-id", registered["client_id"], "-p", str(port)]
            words += ["--resource", f"{base}/mcp", "-o", str(kept)]
            said, step = "", "wait for the address"
            with anyio.move_on_after(SUITE_LIMIT_S) as limit:
                async with await anyio.open_process([*command, *words], stderr=subprocess.STDOUT) as suite:
                    assert suite.stdout is not None
                    async for text in TextReceiveStream(suite.stdout):
                        said += text
                        found = ADDRESS.search(said)
                        if found and step == "wait for the address" and said[found.end() :]:
                            step = "allow"
                            await allow(http, base, (await hub.hosts.create_login_code()).code, found[0])
                            step = "wait for the end of the output"
                    step = "wait for the end of the process"
            assert not limit.cancelled_caught, f"{SUITE_LIMIT_S} s are over ({step}); the suite has printed:\n{said}"
    found_checks = {file.parent.name: json.loads(file.read_text()) for file in kept.glob("**/checks.json")}
    assert found_checks, said
    return found_checks


async def test_the_log_in_passes_what_the_suite_has_for_authorization_servers(
    start_shared_hub: Callable[..., Awaitable[Any]], conformance_command: list[str], tmp_path: Path
) -> None:
    started = await start_shared_hub({}, hub={"mcp_listen": "127.0.0.1:0"})
    served = urlsplit(str(started.ready["mcp"]))
    base = f"{served.scheme}://{served.netloc}"
    found = await run_suite(conformance_command, started.client, base, tmp_path / "checks")
    by_scenario = {name: [each for key, each in found.items() if name in key] for name in (METADATA, GRANT)}
    assert {name: len(each) for name, each in by_scenario.items()} == {METADATA: 1, GRANT: 1}
    assert [complaints(checks) for each in by_scenario.values() for checks in each] == [[], []]
    assert [token.login and token.login.client_name for token in await started.client.tokens.list()] == ["Suite"]
