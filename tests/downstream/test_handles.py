"""Request states that hosts keep: sealed, for one request, for some time."""

import base64
import json
import math
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.core.jsonrpc import INVALID_PARAMS
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.downstream.questions.input_rounds import MAX_ROUND_QUESTIONS
from hubbubd.downstream.questions.state_tokens import MAX_STATE, BoundRequest, StateTokens, digest
from hubbubd.process import files
from hubbubd.store import StoreError
from hubbubd.store.vault import state_keys
from hubbubd.store.vault.state_keys import NAME, ROTATE_S, StateKeyRing
from hubbubd.timing.clock import Clock

PARAMS = {"name": "github__push", "arguments": {"a": 1, "b": [1.5, None]}}
BOUND = BoundRequest(
    principal="ada", profile="default", method="tools/call", name="github__push", params=digest(PARAMS)
)
START = 1_800_000_000.0


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.clock = Clock(lambda: self.passed, START)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def opened(tmp_path: Path, time: Time) -> Callable[[], tuple[StateKeyRing, StateTokens]]:
    """Starts again over the same directory."""

    def start() -> tuple[StateKeyRing, StateTokens]:
        keys = StateKeyRing.open(tmp_path, time.clock)
        return keys, StateTokens(keys, time.clock)

    return start


Opened = Callable[[], tuple[StateKeyRing, StateTokens]]


def refused(handles: StateTokens, state: object, bound: BoundRequest = BOUND) -> str:
    with pytest.raises(Refusal) as refusal:
        handles.open(state, bound)
    assert refusal.value.code == INVALID_PARAMS
    return refusal.value.message


def test_a_state_brings_back_its_call_and_round_as_often_as_it_is_sent(opened: Opened) -> None:
    _, handles = opened()
    state = handles.seal("call_1", 3, BOUND, ttl_s=600)
    for _ in range(2):
        handle = handles.open(state, BOUND)
        assert (handle.call_id, handle.round, handle.expires_at) == ("call_1", 3, START + 600)


def test_each_endpoint_of_a_process_knows_how_old_a_state_is_and_another_process_does_not(
    opened: Opened, time: Time
) -> None:
    keys, handles = opened()
    state = handles.seal("call_1", 1, BOUND, ttl_s=600)
    time.passed += 3
    _, restarted = opened()
    ages = [each.age_s(each.open(state, BOUND)) for each in (handles, StateTokens(keys, time.clock), restarted)]
    assert ages == [3, 3, math.inf]


def test_a_state_says_nothing_to_the_host(opened: Opened) -> None:
    _, handles = opened()
    one, other = (handles.seal("call_1", 3, BOUND, ttl_s=600) for _ in range(2))
    assert one != other
    assert not any(secret in base64.urlsafe_b64decode(one) for secret in (b"call_1", b"ada", b"github"))


def test_the_longest_id_of_a_call_fits_with_the_most_questions(opened: Opened) -> None:
    _, handles = opened()
    asked = [f"req_{n:016x}" for n in range(MAX_ROUND_QUESTIONS)]
    state = handles.seal("c" * 1024, 2**31 - 1, BOUND, ttl_s=600, asked=asked)
    assert len(state) <= MAX_STATE
    assert handles.open(state, BOUND).call_id == "c" * 1024


@pytest.mark.parametrize(
    "other",
    [
        {"principal": "bob"},
        {"profile": "other"},
        {"method": "prompts/get"},
        {"name": "github__pull"},
        {"params": digest({**PARAMS, "arguments": {}})},
        {"principal": 'ada","default', "profile": ""},
    ],
)
def test_a_state_is_of_no_other_request_and_all_refusals_are_alike(opened: Opened, other: dict[str, str]) -> None:
    _, handles = opened()
    state = handles.seal("call_1", 1, BOUND, ttl_s=600)
    assert refused(handles, state, replace(BOUND, **other)) == refused(handles, "forged")


def test_a_state_with_any_character_changed_is_refused(opened: Opened) -> None:
    _, handles = opened()
    state = handles.seal("call_1", 1, BOUND, ttl_s=600)
    for at in range(len(state)):
        for character in ("A", "B", "!", "=", "\n", "é"):
            changed = state[:at] + character + state[at + 1 :]
            if changed != state:
                refused(handles, changed)


@pytest.mark.parametrize(
    "state",
    [
        *(
            "",
            "A",
            "AQ==",
            "AQAAAAAAAAAAAAAAAA==",
            "A" * 100,
            "A" * (MAX_STATE + 4),
            "A" * 10_000_000,
            "\ud800",
            "é" * 8,
        ),
        *(None, 5, True, 1.5, [], {}, ["x"], b"x"),
    ],
)
def test_what_the_hub_never_made_is_refused(opened: Opened, state: Any) -> None:
    _, handles = opened()
    refused(handles, state)


def test_a_state_with_more_or_less_at_its_ends_is_refused(opened: Opened) -> None:
    _, handles = opened()
    state = handles.seal("call_1", 1, BOUND, ttl_s=600)
    for changed in (
        state + "=",
        state + "AAAA",
        " " + state,
        state + "\n",
        state[:-4],
        state[4:],
        state.rstrip("=") + ".",
    ):
        refused(handles, changed)


def test_a_state_expires_and_lives_a_month_at_most(opened: Opened, time: Time) -> None:
    _, handles = opened()
    short, long = handles.seal("a", 1, BOUND, ttl_s=600), handles.seal("b", 1, BOUND, ttl_s=1e12)
    time.passed = 599.5
    assert handles.open(short, BOUND).call_id == "a"
    time.passed = 600
    assert refused(handles, short) == refused(handles, "forged")
    time.passed = ROTATE_S - 1
    assert handles.open(long, BOUND).call_id == "b"
    time.passed = ROTATE_S
    refused(handles, long)


def test_a_state_of_another_hub_is_refused(opened: Opened, tmp_path: Path, time: Time) -> None:
    _, handles = opened()
    (tmp_path / "other").mkdir()
    other = StateTokens(StateKeyRing.open(tmp_path / "other", time.clock), time.clock)
    refused(handles, other.seal("call_1", 1, BOUND, ttl_s=600))


def test_a_state_is_good_after_a_restart(opened: Opened) -> None:
    _, before = opened()
    _, after = opened()
    assert after.open(before.seal("call_1", 1, BOUND, ttl_s=600), BOUND).call_id == "call_1"


def test_the_file_of_the_keys_is_private_even_if_it_was_not(opened: Opened, tmp_path: Path) -> None:
    opened()
    path = tmp_path / NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    opened()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_key_is_shown_where_a_ring_is(opened: Opened, tmp_path: Path) -> None:
    ring, _ = opened()
    kept = state_keys.StateKeys.model_validate_json((tmp_path / NAME).read_bytes())
    assert kept.secrets == ring.secrets
    assert "secret" not in repr(kept)
    assert "secret" not in repr(ring)


def test_of_two_keys_both_open_and_after_the_next_the_oldest_does_not(opened: Opened) -> None:
    ring, handles = opened()
    first = handles.seal("first", 1, BOUND, ttl_s=600)
    ring.rotate()
    second = handles.seal("second", 1, BOUND, ttl_s=600)
    assert [handles.open(each, BOUND).call_id for each in (first, second)] == ["first", "second"]
    ring.rotate()
    refused(handles, first)
    assert handles.open(second, BOUND).call_id == "second"
    restarted, again = opened()
    assert restarted.secrets == ring.secrets
    assert again.open(second, BOUND).call_id == "second"


@pytest.mark.parametrize(
    ("passed", "rotated"),
    [(0, False), (ROTATE_S - 1, False), (ROTATE_S, True), (-3600, False), (-ROTATE_S, True)],
)
def test_a_key_is_replaced_when_it_is_old_or_of_the_far_future(
    opened: Opened, time: Time, passed: float, *, rotated: bool
) -> None:
    ring, _ = opened()
    [before] = ring.secrets
    time.passed = passed
    ring.rotate_if_due()
    assert len(ring.secrets) == (2 if rotated else 1)
    assert ring.secrets[-1] == before


async def test_an_old_key_is_replaced_while_the_hub_runs(opened: Opened, time: Time) -> None:
    ring, _ = opened()
    time.passed = ROTATE_S
    async with anyio.create_task_group() as together:
        together.start_soon(ring.maintain_keys)
        with anyio.fail_after(60):
            while len(ring.secrets) == 1:
                await anyio.sleep(0.001)
        together.cancel_scope.cancel()


def test_a_key_that_cannot_be_written_is_not_used(opened: Opened, time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    ring, handles = opened()
    state = handles.seal("call_1", 1, BOUND, ttl_s=600)

    def full(path: Path, content: bytes) -> None:
        raise OSError(f"{path} cannot be written: no space left on device")

    monkeypatch.setattr(files, "write_atomically", full)
    with pytest.raises(OSError, match="no space left"):
        ring.rotate()
    time.passed = ROTATE_S
    ring.rotate_if_due()
    time.passed = 0
    assert handles.open(state, BOUND).call_id == "call_1"
    assert len(ring.secrets) == 1


def test_a_first_key_that_cannot_be_written_ends_the_start(tmp_path: Path, time: Time) -> None:
    with pytest.raises(OSError, match=NAME):
        StateKeyRing.open(tmp_path / "missing", time.clock)


KEY = {"secret": base64.b64encode(bytes(32)).decode(), "made_at": START}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        json.dumps({"keys": [KEY] * 3}).encode(),
        json.dumps({"keys": [{**KEY, "secret": base64.b64encode(bytes(16)).decode()}]}).encode(),
        json.dumps({"keys": [{**KEY, "secret": "!"}]}).encode(),
        json.dumps({"keys": [{**KEY, "made_at": -1}]}).encode(),
        json.dumps({"keys": [{**KEY, "more": 1}]}).encode(),
        json.dumps({"keys": [KEY]}).encode() + b" " * 4096,
    ],
)
def test_a_damaged_file_is_an_error_that_says_what_to_do_and_shows_no_key(
    tmp_path: Path, time: Time, content: bytes
) -> None:
    path = tmp_path / NAME
    path.write_bytes(content)
    with pytest.raises(StoreError, match=f"{NAME} is damaged. Delete it") as damaged:
        StateKeyRing.open(tmp_path, time.clock)
    assert str(KEY["secret"]) not in str(damaged.value)
    assert path.read_bytes() == content


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), json_values, max_size=4), json_values)
def test_the_digest_is_of_all_params_but_those_of_a_round_in_any_order(params: dict[str, Any], value: Any) -> None:
    bound = {name: inner for name, inner in params.items() if name not in ("_meta", "inputResponses", "requestState")}
    turned = dict(reversed(bound.items()))
    assert digest({**turned, "_meta": value, "inputResponses": value, "requestState": value}) == digest(params)
    assert digest({**bound, "another\x00": value}) != digest(bound)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": "1"}),
        ({"a": 2**70}, {"a": 2**70 + 1}),
        ({"a": "\ud800"}, {"a": "\ud801"}),
        ({"a": {"_meta": 1}}, {"a": {}}),
        ({"a": None}, {}),
    ],
)
def test_other_params_have_another_digest(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert digest(one) != digest(other)
    assert digest(one) == digest(json.loads(json.dumps(one)))
