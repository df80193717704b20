"""Every server scenario of the public conformance suite, with a hub as the server: one of its endpoints, transparent.

Behind the hub is a server that passes all of them without it. The suite runs once for each revision.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Checks, Suite, complaints, required_scenarios

REQUIRED = {
    "2025-11-25": (
        "server-initialize",
        "logging-set-level",
        "ping",
        "completion-complete",
        "tools-list",
        "tools-call-simple-text",
        "tools-call-image",
        "tools-call-audio",
        "tools-call-embedded-resource",
        "tools-call-mixed-content",
        "tools-call-with-logging",
        "tools-call-error",
        "tools-call-with-progress",
        "tools-call-sampling",
        "tools-call-elicitation",
        "elicitation-sep1034-defaults",
        "server-sse-multiple-streams",
        "elicitation-sep1330-enums",
        "resources-list",
        "resources-read-text",
        "resources-read-binary",
        "resources-templates-read",
        "resources-subscribe",
        "resources-unsubscribe",
        "prompts-list",
        "prompts-get-simple",
        "prompts-get-with-args",
        "prompts-get-embedded-resource",
        "prompts-get-with-image",
        "dns-rebinding-protection",
    ),
    "2026-07-28": (
        "server-stateless",
        "completion-complete",
        "tools-list",
        "tools-call-simple-text",
        "tools-call-image",
        "tools-call-audio",
        "tools-call-embedded-resource",
        "tools-call-mixed-content",
        "tools-call-error",
        "tools-call-with-progress",
        "server-sse-multiple-streams",
        "resources-list",
        "resources-read-text",
        "resources-read-binary",
        "resources-templates-read",
        "sep-2164-resource-not-found",
        "prompts-list",
        "prompts-get-simple",
        "prompts-get-with-args",
        "prompts-get-embedded-resource",
        "prompts-get-with-image",
        "dns-rebinding-protection",
        "caching",
        "input-required-result-basic-elicitation",
        "input-required-result-basic-sampling",
        "input-required-result-basic-list-roots",
        "input-required-result-request-state",
        "input-required-result-multiple-input-requests",
        "input-required-result-multi-round",
        "input-required-result-missing-input-response",
        "input-required-result-non-tool-request",
        "input-required-result-result-type",
        "input-required-result-unsupported-methods",
        "input-required-result-tampered-state",
        "input-required-result-capability-check",
        "input-required-result-ignore-extra-params",
        "input-required-result-validate-input",
    ),
}

BEYOND = {
    "2025-11-25": ("server-session-lifecycle", "json-schema-2020-12"),
    "2026-07-28": ("json-schema-2020-12", "http-header-validation", "http-custom-header-server-validation"),
}
"""What no revision requires, and the hub does all the same. `server-sse-polling` wants a server that hangs up."""

TASKS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-required-task-error",
)
"""Those of the tasks extension that FastMCP passes by itself."""

MORE_TASKS = {"tasks-status-notifications": "SKIPPED", "tasks-mrtr-composition": "FAILURE"}
"""The two others, with what the suite says of FastMCP. For the first it has no checks, so nine of ten do not fail."""


@pytest.fixture(scope="module")
async def before(suite: Suite, endpoint: Callable[..., Awaitable[str]], conformance_peer: str) -> Checks:
    """What the suite says of an endpoint before a server of 2025-11-25."""
    return await suite.run(await endpoint(conformance_peer, "2025-11-25"), "2025-11-25")


@pytest.fixture(scope="module")
async def now(suite: Suite, endpoint: Callable[..., Awaitable[str]], conformance_peer: str) -> Checks:
    """What the suite says of an endpoint before a server of 2026-07-28."""
    return await suite.run(await endpoint(conformance_peer, "2026-07-28"), "2026-07-28")


@pytest.fixture(scope="module")
def tasks_peer(shared_http_peer: Callable[..., Any], peer_scripts: Path, hosts_python: str) -> str:
    """The URL of a server whose tools run as tasks."""
    return f"{shared_http_peer([hosts_python, str(peer_scripts / 'fastmcp_tasks_server.py')]).url}/mcp"


@pytest.fixture(scope="module")
async def tasks_endpoint(endpoint: Callable[..., Awaitable[str]], tasks_peer: str) -> str:
    """The URL of an endpoint before that server."""
    return await endpoint(tasks_peer, "2026-07-28")


@pytest.mark.parametrize("revision", REQUIRED)
def test_the_scenarios_are_those_that_the_revision_requires_of_servers(
    revision: str, conformance_command: list[str]
) -> None:
    assert required_scenarios(conformance_command, "server", revision) == list(REQUIRED[revision])


@pytest.mark.parametrize("scenario", [*REQUIRED["2025-11-25"], *BEYOND["2025-11-25"]])
async def test_the_hub_passes_of_2025_11_25(scenario: str, before: Checks) -> None:
    assert complaints(before[scenario]) == []


@pytest.mark.parametrize("scenario", [*REQUIRED["2026-07-28"], *BEYOND["2026-07-28"]])
async def test_the_hub_passes_of_2026_07_28(scenario: str, now: Checks) -> None:
    assert complaints(now[scenario]) == []


@pytest.mark.parametrize("scenario", TASKS)
async def test_the_hub_passes_of_tasks(scenario: str, suite: Suite, tasks_endpoint: str) -> None:
    assert complaints(await suite.one(tasks_endpoint, "2026-07-28", scenario)) == []


@pytest.mark.parametrize("scenario", MORE_TASKS)
async def test_of_the_other_scenarios_of_tasks_the_hub_makes_what_the_server_makes(
    scenario: str, suite: Suite, tasks_endpoint: str, tasks_peer: str
) -> None:
    through, direct = [await suite.one(url, "2026-07-28", scenario) for url in (tasks_endpoint, tasks_peer)]
    said = [(check["status"], check["id"]) for check in through]
    assert said == [(check["status"], check["id"]) for check in direct]
    assert said[0][0] == MORE_TASKS[scenario]
