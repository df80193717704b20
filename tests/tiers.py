"""Which tests are run when. No test says it of itself: its tier follows from its fixtures, or from where it is.

quick   starts no process; `make quick` runs these
real    starts processes: hubs, servers, commands, all of them Python's; or takes several seconds over
        every screen, many connections or many orders; `make test` runs these and the quick ones
whole   needs a browser, Node, programs of Debian or the site of the documents, or goes on for minutes; `make
        test-all` runs all

A quick test that starts a process fails: it is to use a fixture that gives one, or `processes`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

WHOLE_PLACES = (
    *("conformance/", "deploy/", "fuzz/test_fuzz.py", "e2e/test_crash.py", "e2e/test_benchmarks.py"),
    *("downstream/test_many_races.py", "e2e/test_hosts_kills.py", "e2e/test_hosts_many_results.py"),
    *("e2e/test_many_sessions.py", "hosts/test_pauses.py", "hosts/test_restarts.py"),
    *("e2e/test_run_fleet.py", "fleet/"),
    "clients/test_shells.py",
)
"""The public suite (Node), what ships for running the hub (Debian), inputs, races and sessions by the thousand, kills
in a row; figures; shells.
"""

WHOLE_FIXTURES = {
    "browser",
    "conformance_command",
    "everything_command",
    "gemini_cli",
    "go_library",
    "hosts_python",
    "installed_typescript",
    "npm_hosts",
    "postgres",
    "site",
}
"""Those that need such programs; and the site of the documents, which takes ten seconds of processor time to build."""

REAL_PLACES = (
    "e2e/",
    "clients/test_at_a_terminal.py",
    "clients/test_streams.py",
    "clients/test_tls.py",
    "repo/test_installing.py",
    "rpc/test_access.py",
    "rpc/test_bad_input.py",
    "rpc/test_credential_ends.py",
    "rpc/test_credentials.py",
    "rpc/test_flow.py",
    "rpc/test_health.py",
    "rpc/test_strangers.py",
    "rpc/test_tls.py",
    "runtime/test_interleavings.py",
    "runtime/test_many_servers.py",
    "tui/test_hostile.py",
    "tui/test_legible.py",
    "upstream/test_behind_balancer.py",
    "upstream/test_faults_stdio.py",
    "upstream/test_launcher.py",
    "upstream/test_launcher_limits.py",
    "upstream/test_reaper.py",
    "upstream/test_stderr.py",
    "upstream/test_stdio.py",
)

REAL_FIXTURES = {
    "http_peer",
    "hubbub",
    "hubbub_process",
    "mcp1_python",
    "processes",
    "shared_http_peer",
    "start_bridge",
    "start_hub",
    "start_shared_bridge",
    "start_shared_hub",
    "started_for_real",
    "stdio",
}

STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "tests.fork"}
"""What Python, or `tests/forks`, tells when a process begins."""

_started: list[str] = []


def _heard(event: str, given: tuple[Any, ...]) -> None:
    if event in STARTS:
        _started.append(f"{event}: {given[:2]}"[:200])


sys.addaudithook(_heard)


def tier(path: Path, fixtures: set[str]) -> str:
    """The tier of a test in this file that uses these fixtures."""
    place = path.relative_to(HERE).as_posix()
    if place.startswith(WHOLE_PLACES) or fixtures & WHOLE_FIXTURES:
        return "whole"
    if place.startswith(REAL_PLACES) or fixtures & REAL_FIXTURES:
        return "real"
    return "quick"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks each test with its tier, before `-m` chooses among them. Quick ones are last.

    So they run beside tests that wait for processes, and no long test is left for the end.
    """
    for item in items:
        item.add_marker(tier(item.path, set(getattr(item, "fixturenames", ()))))
    items.sort(key=lambda item: item.get_closest_marker("quick") is not None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """From here on it is this test, with its fixtures, that starts what begins."""
    _started.clear()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails a test that is slower than its tier promises, since it starts processes."""
    yield
    if _started and item.get_closest_marker("quick"):
        pytest.fail(f"it starts processes, so it is not quick: {_started}", pytrace=False)
