"""Every client scenario that a revision requires, from the public conformance suite, with a hub as the client.

They run one by one: only then does the suite count warnings and time-outs as failures.
"""

import re
import shlex
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from .. import forks
from ..e2e.conftest import environment, running
from .conftest import required_scenarios

CLIENT_LIMIT_S = 90
SUITE_LIMIT_S = 150

AUTHORIZATION = (
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
)

REQUIRED = {
    "2025-11-25": (
        "initialize",
        "tools_call",
        "elicitation-sep1034-client-defaults",
        "sse-retry",
        *AUTHORIZATION,
    ),
    "2026-07-28": (
        "tools_call",
        "request-metadata",
        *AUTHORIZATION,
        "auth/resource-mismatch",
        "auth/offline-access-scope",
        "auth/offline-access-not-supported",
        "auth/authorization-server-migration",
        "auth/iss-supported",
        "auth/iss-not-advertised",
        "auth/iss-supported-missing",
        "auth/iss-wrong-issuer",
        "auth/iss-unexpected",
        "auth/iss-normalized",
        "auth/metadata-issuer-mismatch",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
    ),
}

BEYOND = {
    "2025-11-25": ("json-schema-2020-12-preservation",),
    "2026-07-28": (
        "json-schema-2020-12-preservation",
        "auth/client-credentials-jwt",
        "auth/client-credentials-basic",
    ),
}
"""What no revision requires, and the hub does all the same."""

SCENARIOS = [(revision, scenario) for revision in REQUIRED for scenario in (*REQUIRED[revision], *BEYOND[revision])]


@pytest.mark.parametrize("revision", REQUIRED)
def test_the_scenarios_are_those_that_the_revision_requires_of_clients(
    revision: str, conformance_command: list[str]
) -> None:
    assert required_scenarios(conformance_command, "client", revision) == list(REQUIRED[revision])


@pytest.fixture(scope="module")
async def hub_environment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, str]]:
    """Where a hub is that goes through all scenarios; it must then exit with 0 and leave no process behind."""
    directory = tmp_path_factory.mktemp("hub")
    config, data = directory / "hub.json", directory / "data"
    config.write_text('{"servers": {}}')
    async with running(["--config", str(config), "--data-dir", str(data), "--listen", "127.0.0.1:0"]):
        # With settings of Python, the frontend would not be forked.
        kept = {name: value for name, value in environment().items() if not name.startswith("PYTHON")}
        yield {**kept, "HUBBUB_DATA_DIR": str(data), "HUB_CONFIG": str(config)}


@pytest.mark.parametrize(("revision", "scenario"), SCENARIOS)
async def test_the_hub_passes(
    revision: str, scenario: str, conformance_command: list[str], hub_environment: dict[str, str]
) -> None:
    client = shlex.join(forks.command_of_script(Path(__file__).with_name("adapter.py")))
    command = [*conformance_command, "client", "--command", client, "--scenario", scenario]
    # Without force, what is beyond a revision would be left out.
    command += ["--spec-version", revision, "--force", "--timeout", str(CLIENT_LIMIT_S * 1000)]
    with anyio.fail_after(SUITE_LIMIT_S):
        done = await anyio.run_process(command, check=False, stderr=subprocess.STDOUT, env=hub_environment)
    told = done.stdout.decode()
    passed = re.search(r"^Passed: (\d+)/\1, 0 failed, 0 warnings$", told, re.MULTILINE)
    assert done.returncode == 0, told
    assert passed is not None, told
    assert int(passed[1]) > 0, told
