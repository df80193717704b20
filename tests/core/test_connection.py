"""The table of a connection's states, and what `plan` makes of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.core.servers.backoff import JITTER
from hubbubd.core.servers.connection_states import (
    EFFECTS,
    TRANSITIONS,
    ConnectionEvent,
    ConnectionState,
    Effect,
    IllegalTransition,
    RetryPolicy,
    ServerConnection,
    plan,
)
from hubbubd.errors import Category, Fault

# Written out once more, from the design: the code's own table must agree with it.
TABLE = {
    (ConnectionState.DISCONNECTED, ConnectionEvent.CONNECT): ConnectionState.CONNECTING,
    (ConnectionState.CONNECTING, ConnectionEvent.HANDSHAKE_COMPLETE): ConnectionState.CONNECTED,
    (ConnectionState.CONNECTING, ConnectionEvent.TIMEOUT): ConnectionState.ERROR,
    (ConnectionState.CONNECTING, ConnectionEvent.TRANSPORT_ERROR): ConnectionState.ERROR,
    (ConnectionState.CONNECTED, ConnectionEvent.CONNECTION_LOST): ConnectionState.ERROR,
    (ConnectionState.CONNECTED, ConnectionEvent.SESSION_LOST): ConnectionState.CONNECTING,
    (ConnectionState.ERROR, ConnectionEvent.RECONNECT): ConnectionState.CONNECTING,
    (ConnectionState.ERROR, ConnectionEvent.GIVE_UP): ConnectionState.DISCONNECTED,
    (ConnectionState.CONNECTING, ConnectionEvent.DISCONNECT): ConnectionState.DISCONNECTING,
    (ConnectionState.CONNECTED, ConnectionEvent.DISCONNECT): ConnectionState.DISCONNECTING,
    (ConnectionState.ERROR, ConnectionEvent.DISCONNECT): ConnectionState.DISCONNECTING,
    (ConnectionState.DISCONNECTING, ConnectionEvent.CLEANUP_COMPLETE): ConnectionState.DISCONNECTED,
}
POLICY = RetryPolicy(retries=3)
REFUSED = Fault(code="CONNECTION_REFUSED", category=Category.CONNECTION, message="refused", retryable=True)
FORBIDDEN = Fault(code="AUTHENTICATION_FAILED", category=Category.CONNECTION, message="401", retryable=False)


def after(
    connection: ServerConnection,
    *events: ConnectionEvent,
    now: float = 1000.0,
    policy: RetryPolicy = POLICY,
    fault: Fault | None = None,
    jitter: float = 0.0,
) -> ServerConnection:
    for event in events:
        connection, _ = plan(connection, event, now, policy, fault=fault, jitter=jitter)
    return connection


def failed_times(count: int, policy: RetryPolicy = POLICY, fault: Fault = REFUSED) -> ServerConnection:
    connection = after(ServerConnection(), ConnectionEvent.CONNECT)
    for _ in range(count - 1):
        connection = after(
            connection, ConnectionEvent.TRANSPORT_ERROR, ConnectionEvent.RECONNECT, fault=fault, policy=policy
        )
    return after(connection, ConnectionEvent.TRANSPORT_ERROR, fault=fault, policy=policy)


@pytest.mark.parametrize("state", ConnectionState)
@pytest.mark.parametrize("event", ConnectionEvent)
def test_an_event_leads_where_the_table_says_or_is_refused(state: ConnectionState, event: ConnectionEvent) -> None:
    before = ServerConnection(state=state, attempt=2)
    copy = replace(before)
    if (state, event) in TABLE:
        assert plan(before, event, 1000.0, POLICY)[0].state is TABLE[state, event]
    else:
        with pytest.raises(IllegalTransition, match=f"{event} is not possible in {state}"):
            plan(before, event, 1000.0, POLICY)
    assert before == copy


def test_the_published_table_is_that_of_the_design() -> None:
    assert dict(TRANSITIONS) == TABLE


@pytest.mark.parametrize(("state", "event"), TABLE)
def test_a_transition_says_what_becomes_of_the_calls(state: ConnectionState, event: ConnectionEvent) -> None:
    effects = {
        ConnectionEvent.HANDSHAKE_COMPLETE: Effect.RELEASE_CALLS,
        ConnectionEvent.GIVE_UP: Effect.FAIL_ALL_CALLS,
        ConnectionEvent.DISCONNECT: Effect.FAIL_ALL_CALLS,
    }
    assert plan(ServerConnection(state=state), event, 0.0, POLICY, fault=REFUSED)[1] is effects.get(event)


def test_failed_attempts_wait_one_two_and_four_seconds_and_then_are_given_up() -> None:
    waits = [failed_times(count).next_retry_at for count in (1, 2, 3, 4)]
    assert waits == [1001.0, 1002.0, 1004.0, None]


def test_the_last_failure_asks_to_give_up_and_keeps_its_fault() -> None:
    connecting = after(failed_times(3), ConnectionEvent.RECONNECT)
    error, _ = plan(connecting, ConnectionEvent.TIMEOUT, 1000.0, POLICY, fault=REFUSED)
    assert error == ServerConnection(state=ConnectionState.ERROR, attempt=4, fault=REFUSED)
    assert after(error, ConnectionEvent.GIVE_UP) == ServerConnection(attempt=4, fault=REFUSED, gave_up=True)


def test_retries_of_minus_one_go_on_for_ever_at_the_ceiling() -> None:
    endless = RetryPolicy(retries=-1, backoff_max_s=30)
    assert failed_times(200, endless).next_retry_at == 1030.0


def test_no_retries_gives_up_at_the_first_failure() -> None:
    assert failed_times(1, RetryPolicy(retries=0)).next_retry_at is None


def test_a_fault_that_is_not_retryable_is_given_up_at_once() -> None:
    assert failed_times(1, fault=FORBIDDEN).next_retry_at is None


@pytest.mark.parametrize(("fault", "retried"), [(FORBIDDEN, True), (REFUSED, False)])
def test_the_configured_list_of_retryable_errors_wins_over_the_faults_own_word(fault: Fault, retried: bool) -> None:
    policy = RetryPolicy(retryable_errors=frozenset({FORBIDDEN.code}))
    assert (failed_times(1, policy, fault).next_retry_at is not None) is retried


@pytest.mark.parametrize(("retry_after_s", "expected"), [(30.0, 1030.0), (0.1, 1001.0), (0.0, 1001.0), (None, 1001.0)])
def test_a_server_that_says_when_to_come_back_is_not_asked_earlier(
    retry_after_s: float | None, expected: float
) -> None:
    assert failed_times(1, fault=replace(REFUSED, retry_after_s=retry_after_s)).next_retry_at == expected


def test_jitter_stretches_the_wait() -> None:
    connecting = ServerConnection(state=ConnectionState.CONNECTING)
    error = after(connecting, ConnectionEvent.TIMEOUT, fault=REFUSED, jitter=1.0)
    assert error.next_retry_at == pytest.approx(1000.0 + 1 + JITTER)


def test_a_failure_without_details_counts_as_a_lost_connection() -> None:
    error = after(ServerConnection(state=ConnectionState.CONNECTING), ConnectionEvent.TRANSPORT_ERROR)
    assert (error.fault.code, error.next_retry_at) == ("CONNECTION_LOST", 1001.0)


def test_a_connection_that_held_for_long_enough_counts_anew_when_it_is_lost() -> None:
    connected = ServerConnection(state=ConnectionState.CONNECTED, attempt=3, connected_at=1000.0)
    assert after(connected, ConnectionEvent.CONNECTION_LOST, now=1010.0).attempt == 1


def test_a_connection_that_flaps_keeps_its_count_and_is_given_up() -> None:
    connection = after(ServerConnection(), ConnectionEvent.CONNECT)
    for attempt in (1, 2, 3):
        connection = after(connection, ConnectionEvent.HANDSHAKE_COMPLETE, now=1000.0)
        connection = after(connection, ConnectionEvent.CONNECTION_LOST, now=1009.9)
        assert connection.attempt == attempt
        connection = after(connection, ConnectionEvent.RECONNECT)
    connection = after(connection, ConnectionEvent.HANDSHAKE_COMPLETE, now=1000.0)
    assert plan(connection, ConnectionEvent.CONNECTION_LOST, 1009.9, POLICY)[0].next_retry_at is None


def test_a_lost_session_counts_no_attempt() -> None:
    connected = ServerConnection(state=ConnectionState.CONNECTED, attempt=2, connected_at=1000.0)
    assert after(connected, ConnectionEvent.SESSION_LOST, now=1001.0).attempt == 2


def test_a_session_lost_after_a_stable_time_starts_counting_anew() -> None:
    connected = ServerConnection(state=ConnectionState.CONNECTED, attempt=3, connected_at=1000.0)
    connecting = after(connected, ConnectionEvent.SESSION_LOST, now=5000.0)
    assert after(connecting, ConnectionEvent.TIMEOUT, now=5001.0, fault=REFUSED).next_retry_at == 5002.0


def test_a_new_connect_forgets_earlier_failures() -> None:
    given_up = ServerConnection(state=ConnectionState.DISCONNECTED, attempt=4, fault=REFUSED)
    assert after(given_up, ConnectionEvent.CONNECT) == ServerConnection(state=ConnectionState.CONNECTING)


def test_a_completed_handshake_clears_the_fault_and_says_since_when() -> None:
    connected = after(after(failed_times(1), ConnectionEvent.RECONNECT), ConnectionEvent.HANDSHAKE_COMPLETE, now=1234.0)
    assert (connected.fault, connected.connected_at, connected.attempt) == (None, 1234.0, 1)


def test_a_disconnect_ends_as_clean_as_it_began() -> None:
    assert after(failed_times(2), ConnectionEvent.DISCONNECT, ConnectionEvent.CLEANUP_COMPLETE) == ServerConnection()


steps = st.tuples(
    st.sampled_from(ConnectionEvent), st.floats(0, 100), st.sampled_from([None, REFUSED, FORBIDDEN]), st.floats(0, 1)
)


@given(st.lists(steps, max_size=60), st.integers(-1, 5))
def test_whatever_happens_a_record_stays_consistent(
    happenings: list[tuple[ConnectionEvent, float, Fault | None, float]], retries: int
) -> None:
    policy, connection, now = RetryPolicy(retries=retries), ServerConnection(), 1000.0
    for event, passed, fault, jitter in happenings:
        now += passed
        if (connection.state, event) not in TABLE:
            with pytest.raises(IllegalTransition):
                plan(connection, event, now, policy, fault=fault, jitter=jitter)
            continue
        before = connection
        connection, effect = plan(before, event, now, policy, fault=fault, jitter=jitter)
        assert connection.state is TABLE[before.state, event]
        assert effect is EFFECTS.get(event)
        assert 0 <= connection.attempt <= before.attempt + 1
        assert connection.attempt <= before.attempt or connection.state is ConnectionState.ERROR
        assert (connection.connected_at is not None) == (connection.state is ConnectionState.CONNECTED)
        assert connection.next_retry_at is None or connection.state is ConnectionState.ERROR
        assert connection.next_retry_at is None or connection.next_retry_at > now
        if connection.state is ConnectionState.ERROR:
            assert connection.fault is not None
            tried_again = policy.allows(connection.fault, connection.attempt)
            assert (connection.next_retry_at is not None) == tried_again
