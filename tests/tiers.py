"""Which tests are run when. No test says it of itself: its tier follows from its fixtures, or from where it is.

quick   starts no process; `make quick` runs these
golden  one real test for each promise of the README (GOLDEN); `make test` runs these and the quick ones
real    starts processes: hubs, servers, commands, all of them Python's; or takes several seconds over
        every screen, many connections or many orders
whole   needs a browser, Node, programs of Debian or the site of the documents, or goes on for minutes; `make
        test-all` runs all

A quick test that starts a process fails: it is to use a fixture that gives one, or `processes`.
"""

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

WHOLE_PLACES = (
    *("conformance/", "deploy/", "fuzz/test_fuzz.py", "e2e/test_crash.py", "e2e/test_benchmarks.py"),
    "e2e/test_crash_approvals.py",
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
    "go_library",
    "hosts_python",
    "installed_typescript",
    "npm_apps",
    "npm_hosts",
    "postgres",
    "site",
}
"""Those that need such programs; and the site of the documents, which takes ten seconds of processor time to build."""

LONGEST = (
    *("conformance/test_hub_as_authorization_server.py", "deploy/test_first_contact.py", "e2e/test_benchmarks.py"),
    *("e2e/test_crash.py", "e2e/test_frontends.py", "fuzz/test_fuzz.py", "repo/test_stubs.py"),
)
"""Where a single test takes as long as hundreds of others: they begin first, so that none is left for the end."""

REAL_PLACES = (
    "e2e/",
    "clients/test_anywhere.py",
    "clients/test_at_a_terminal.py",
    "clients/test_streams.py",
    "clients/test_tls.py",
    "downstream/test_many_hosts.py",
    "repo/test_installing.py",
    "rpc/test_access.py",
    "rpc/test_bad_input.py",
    "rpc/test_credential_ends.py",
    "rpc/test_credentials.py",
    "rpc/test_flow.py",
    "rpc/test_health.py",
    "rpc/test_keep_alive.py",
    "rpc/test_strangers.py",
    "rpc/test_tls.py",
    "runtime/test_interleavings.py",
    "runtime/test_many_servers.py",
    "tui/test_hostile.py",
    "tui/test_keys.py",
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

GOLDEN = {
    "acp/test_processes.py": {"test_a_turn_of_a_real_agent_and_the_end_of_all_its_processes"},
    "clients/test_cli.py": {"test_a_call_that_needs_a_person_says_how_to_answer"},
    "clients/test_sync.py": {"test_an_interrupted_call_is_aborted_at_once"},
    "e2e/test_agent.py": {"test_the_rules_of_the_documentation_answer_the_demo"},
    "e2e/test_answers.py": {
        "test_of_many_answers_at_once_one_is_accepted_and_reaches_the_server",
        "test_a_call_that_waits_for_a_person_lets_the_next_one_through",
    },
    "e2e/test_bad_servers.py": {"test_nothing_that_a_server_started_is_left"},
    "e2e/test_reference_server.py": {"test_all_that_it_offers_is_listed"},
    "e2e/test_connect.py": {"test_the_document_shows_what_curl_gets"},
    "e2e/test_daemon.py": {"test_the_token_stays_over_restarts_and_sigint_ends_it_well"},
    "e2e/test_drain.py": {
        "test_a_call_under_way_may_end_while_new_ones_are_refused_and_its_question_can_still_be_answered"
    },
    "e2e/test_library.py": {"test_a_script_without_async_calls_watches_and_answers"},
    "e2e/test_mcp_bridge.py": {
        "test_a_call_that_waits_for_a_person_outlives_its_hub_and_its_host_notices_nothing",
    },
    "e2e/test_mcp_endpoint.py": {"test_a_host_gets_the_servers_own_result"},
    "e2e/test_notify.py": {"test_a_webhook_is_told_once_of_what_waits_also_by_the_next_service"},
    "e2e/test_processes.py": {"test_when_all_that_stands_over_the_servers_is_killed_they_come_back"},
    "e2e/test_reload.py": {"test_only_what_changed_is_touched_and_a_call_of_another_server_goes_on"},
    "e2e/test_restart.py": {
        "test_an_acknowledged_answer_survives_kill_9_and_no_process_does",
        "test_a_task_is_answered_after_a_restart_and_its_server_finds_it",
        "test_watches_go_on_over_a_restart_and_lose_nothing",
    },
    "e2e/test_rounds.py": {"test_two_rounds_are_asked_one_after_the_other"},
    "e2e/test_secrets.py": {"test_the_data_directory_and_all_in_it_are_their_owners_only"},
    "e2e/test_tasks.py": {"test_a_task_works_while_a_person_is_asked_and_keeps_its_result"},
    "e2e/test_traces.py": {"test_a_plain_question_is_told_from_the_caller_to_the_server_and_back"},
    "e2e/test_up.py": {"test_a_hub_in_the_background_goes_on_and_a_second_one_is_not_started"},
    "tui/test_outcomes.py": {"test_after_an_answer_it_is_said_in_words_and_so_is_what_the_call_returned"},
}
"""Real tests that `make test` runs, by file: what the README promises, each by one that has every part in it."""

STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "tests.fork"}
"""What Python, or `tests/forks`, tells when a process begins."""

_started: list[str] = []


def _heard(event: str, given: tuple[Any, ...]) -> None:
    if event in STARTS:
        _started.append(f"{event}: {given[:2]}"[:200])


sys.addaudithook(_heard)


@cache
def _place(path: Path) -> str:
    return path.relative_to(HERE).as_posix()


def tier(path: Path, fixtures: set[str], name: str = "") -> str:
    """The tier of a test in this file that has this name and uses these fixtures."""
    place = _place(path)
    if place.startswith(WHOLE_PLACES) or fixtures & WHOLE_FIXTURES:
        return "whole"
    if place.startswith(REAL_PLACES) or fixtures & REAL_FIXTURES:
        return "golden" if name in GOLDEN.get(place, ()) else "real"
    return "quick"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks each test with its tier, before `-m` chooses among them. The longest are first, and quick ones last.

    So they run beside tests that wait for processes, and no long test is left for the end.
    """
    for item in items:
        name = getattr(item, "originalname", item.name)
        item.add_marker(tier(item.path, set(getattr(item, "fixturenames", ())), name))
    items.sort(key=lambda item: (item.get_closest_marker("quick") is not None, _place(item.path) not in LONGEST))


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
