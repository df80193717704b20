"""Specs of the API and configurations of servers: what one says the other says, and secrets stay where they were."""

import string
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from hypothesis import given
from hypothesis import strategies as st

from hubbub.v1 import options_pb2, server_pb2
from hubbub_client.data import specs as library
from hubbubd.config import ServerConfig
from hubbubd.config.servers.server import REVISIONS, WITHHELD
from hubbubd.errors import InvalidArgument
from hubbubd.rpc import specs
from hubbubd.rpc.spec_fields import FIELDS, OF_FILES, OTHERWISE, PATHS

from .conftest import spec_of

TEXT = st.text(string.ascii_letters + string.digits + " *?._-é", min_size=1, max_size=12)
SECONDS = st.integers(1, 10_000_000_000_000).map(lambda micros: micros / 1_000_000)
PAUSES = st.integers(0, 10_000_000_000_000).map(lambda micros: micros / 1_000_000)
COUNTS = st.integers(1, 1_000_000_000)
NAMES = st.text(string.ascii_letters, min_size=1, max_size=8)
SECRETS = st.dictionaries(NAMES, TEXT, min_size=1, max_size=3)
LISTS = st.lists(TEXT, min_size=1, max_size=3)
ROOTS = st.lists(
    st.fixed_dictionaries(
        {"uri": TEXT.map("file:///{}".format)}, optional={"name": TEXT, "_meta": st.just({"x": [1]})}
    ),
    max_size=2,
)

OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("connect_timeout_s", "call_timeout_s", "call_max_s", "ping_timeout_s"), SECONDS),
    **dict.fromkeys(("backoff_max_s", "answer_timeout_s", "receiver_task_ttl_s"), SECONDS),
    **dict.fromkeys(("call_history_age_s", "request_history_age_s", "task_history_age_s"), SECONDS),
    **dict.fromkeys(("ping_interval_s", "stable_after_s"), PAUSES),
    **dict.fromkeys(("call_history_count", "request_history_count", "task_history_count", "max_queued"), COUNTS),
    **dict.fromkeys(("progress_resets_timeout", "one_question_at_a_time", "resume"), st.booleans()),
    **dict.fromkeys(("auto_reject_on_timeout", "sampling", "elicitation", "receiver_tasks"), st.booleans()),
    "retries": st.integers(-1, 1_000_000_000),
    "backoff_s": st.lists(SECONDS, min_size=1, max_size=3),
    "retryable_errors": st.lists(TEXT, max_size=3),
    "allow_tools": st.lists(TEXT, max_size=3),
    "deny_tools": LISTS,
    "max_in_flight": st.integers(1, 1024),
    "timeout_message": st.text(string.printable, max_size=20),
    "max_open_request_bytes": st.integers(1024, 2**40),
    "max_message_bytes": st.integers(1024, 1024**3),
    "max_messages_per_s": st.floats(0.01, 1_000_000),
    "max_bytes_per_s": st.integers(1024, 2**40),
    "protocol": st.sampled_from(REVISIONS),
    "roots": st.just("ask") | ROOTS,
}
STDIO = st.fixed_dictionaries({"command": TEXT}, optional={"args": LISTS, "env": SECRETS, "cwd": TEXT})
HTTP = st.fixed_dictionaries(
    {"url": st.sampled_from(["http://a.test/mcp", "https://b.test/?key=secret", "http://c.test/x?a=b#part"])},
    optional={"headers": SECRETS, "transport": st.sampled_from(["http", "sse"])},
)
SPECS = st.builds(
    lambda endpoint, options: {"name": "one", **endpoint, **options},
    STDIO | HTTP,
    st.fixed_dictionaries({}, optional=OPTIONS),
)
WHOLE = st.builds(
    lambda endpoint, options: {"name": "one", **endpoint, **options}, STDIO | HTTP, st.fixed_dictionaries(OPTIONS)
)

AGREED = {
    "name": "name",
    "stdio.command": "command",
    "stdio.args": "args",
    "stdio.env": "env",
    "stdio.cwd": "cwd",
    "http.url": "url",
    "http.headers": "headers",
    "timeouts.connect": "connect_timeout_s",
    "timeouts.call": "call_timeout_s",
    "timeouts.call_max": "call_max_s",
    "timeouts.progress_resets_call": "progress_resets_timeout",
    "timeouts.ping_interval": "ping_interval_s",
    "timeouts.ping": "ping_timeout_s",
    "retry.retries": "retries",
    "retry.backoff": "backoff_s",
    "retry.backoff_max": "backoff_max_s",
    "retry.stable_after": "stable_after_s",
    "retry.retryable_errors": "retryable_errors",
    "tools.allow": "allow_tools",
    "tools.deny": "deny_tools",
    "history.call_count": "call_history_count",
    "history.call_age": "call_history_age_s",
    "history.pending_request_count": "request_history_count",
    "history.pending_request_age": "request_history_age_s",
    "history.task_count": "task_history_count",
    "history.task_age": "task_history_age_s",
    "queue.max_in_flight": "max_in_flight",
    "queue.max_queued": "max_queued",
    "queue.one_at_a_time": "one_question_at_a_time",
    "queue.resume": "resume",
    "pending_requests.timeout": "answer_timeout_s",
    "pending_requests.auto_reject": "auto_reject_on_timeout",
    "pending_requests.timeout_message": "timeout_message",
    "pending_requests.max_open_bytes": "max_open_request_bytes",
    "features.sampling": "sampling",
    "features.elicitation": "elicitation",
    "features.receiver_tasks": "receiver_tasks",
    "features.receiver_task_ttl": "receiver_task_ttl_s",
    "intake.max_message_bytes": "max_message_bytes",
    "intake.max_messages_per_s": "max_messages_per_s",
    "intake.max_bytes_per_s": "max_bytes_per_s",
    "protocol_version": "protocol",
}
"""Each field of a spec and its key in a configuration file. Not to be changed: callers rely on both."""


def test_every_key_of_a_configuration_is_generated_here_and_known_to_the_library() -> None:
    endpoint = {"name", "command", "args", "env", "cwd", "url", "headers", "transport"}
    assert set(OPTIONS) | endpoint | OF_FILES == set(ServerConfig.model_fields)
    assert set(library.KEYS) == set(FIELDS) | OTHERWISE


def test_each_field_of_a_spec_has_the_key_that_it_was_agreed_on_with() -> None:
    """The library reads the same option: were it another key's, both sides would agree on the wrong one."""
    assert {field.path: key for key, field in FIELDS.items()} == AGREED


def test_every_field_of_a_spec_is_a_group_or_names_its_key() -> None:
    groups = [server_pb2.ServerSpec.DESCRIPTOR]
    bare: list[str] = []
    while groups:
        for field in groups.pop().fields:
            if field.GetOptions().Extensions[options_pb2.config_key]:
                continue
            if field.message_type is not None and field.name != "roots":
                groups.append(field.message_type)
            else:
                bare.append(field.full_name.removeprefix("hubbub.v1."))
    assert sorted(bare) == ["HttpEndpoint.variant", "ServerSpec.roots"]


@given(SPECS | WHOLE)
def test_nothing_of_a_spec_is_lost_when_what_was_read_is_written_back(options: dict[str, Any]) -> None:
    configured = specs.config(spec_of(**options))
    shown, withheld = specs.shown(configured)
    assert specs.changed(configured, shown, None) == configured
    assert specs.shown(specs.changed(configured, shown, None)) == (shown, withheld)


@given(SPECS | WHOLE)
def test_nothing_of_a_spec_is_lost_in_the_library(options: dict[str, Any]) -> None:
    given = {"transport": "http", **options} if "url" in options else options
    assert library.from_message(spec_of(**options)) == library.ServerSpec(**given)
    configured = specs.config(spec_of(**options))
    read = library.from_message(*specs.shown(configured))
    assert specs.changed(configured, library.to_message(read), None) == configured


def test_the_library_names_the_parts_of_a_spec_as_the_hub_does() -> None:
    assert library.paths(*PATHS) == list(PATHS.values())


@given(SPECS | WHOLE)
def test_what_a_spec_says_is_what_the_server_is_configured_with(options: dict[str, Any]) -> None:
    plain = specs.config(spec_of(**options)).model_dump()
    expected = ServerConfig.model_validate(options).model_dump()
    assert plain == expected


@given(SPECS | WHOLE)
def test_no_secret_is_shown_and_each_is_said_to_be_withheld(options: dict[str, Any]) -> None:
    shown, withheld = specs.shown(specs.config(spec_of(**options)))
    hidden = {f"stdio.env.{name}" for name in options.get("env", ())}
    hidden |= {f"http.headers.{name}" for name in options.get("headers", ())}
    hidden |= {"http.url?"} if "?" in options.get("url", "") else set()
    assert set(withheld) == hidden
    assert {*shown.stdio.env.values(), *shown.http.headers.values()} <= {WITHHELD}
    assert "secret" not in shown.http.url


@given(SPECS, st.data())
def test_an_update_of_one_part_leaves_all_others_as_they_are(options: dict[str, Any], data: st.DataObject) -> None:
    before = specs.config(spec_of(**options))
    key = data.draw(st.sampled_from(sorted(OPTIONS)))
    value = data.draw(OPTIONS[key])
    only = spec_of(name="one", **{key: value})
    after = specs.changed(before, only, FieldMask(paths=[PATHS[key]]))
    fresh = ServerConfig.model_validate({"name": "one", "command": "x", key: value})
    assert getattr(after, key) == getattr(fresh, key)
    assert after.model_copy(update={key: None}) == before.model_copy(update={key: None})


def test_a_part_that_is_left_out_takes_its_default_and_a_group_is_taken_whole() -> None:
    before = specs.config(spec_of(name="one", command="x", retries=3, backoff_s=[5], call_timeout_s=7))
    after = specs.changed(before, spec_of(name="one", retries=4), FieldMask(paths=["retry", "timeouts.call"]))
    assert (after.retries, after.backoff_s, after.call_timeout_s) == (4, (1, 2, 4), 300)


@pytest.mark.parametrize(
    "path", ["", "name", "endpoint", "retry.none", "tools.allow.values.x", "stdio.env.A", "é", "."]
)
def test_a_path_that_is_no_part_of_a_spec_is_refused(path: str) -> None:
    before = specs.config(spec_of(name="one", command="x"))
    with pytest.raises(InvalidArgument) as caught:
        specs.changed(before, spec_of(name="one"), FieldMask(paths=[path]))
    assert [field for field, _ in caught.value.violations] == ["update_mask"]


MOVED = [
    ({"command": "x", "env": {"KEY": "secret"}}, {"command": "y"}, "spec.stdio.env.KEY"),
    ({"command": "x", "env": {"KEY": "secret"}}, {"args": ["-v"]}, "spec.stdio.env.KEY"),
    ({"command": "x", "env": {"KEY": "secret"}}, {"cwd": "/tmp"}, "spec.stdio.env.KEY"),
    ({"url": "http://a.test/", "headers": {"Key": "secret"}}, {"url": "http://b.test/"}, "spec.http.headers.Key"),
    ({"url": "http://a.test/", "headers": {"Key": "secret"}}, {"transport": "sse"}, "spec.http.headers.Key"),
    ({"url": "http://a.test/?secret"}, {"url": f"http://b.test/?{WITHHELD}"}, "spec.http.url"),
    ({"command": "x"}, {"env": {"KEY": WITHHELD}}, "spec.stdio.env.KEY"),
]


@pytest.mark.parametrize(("options", "change", "field"), MOVED)
def test_a_withheld_secret_does_not_go_along_to_another_endpoint(
    options: dict[str, Any], change: dict[str, Any], field: str
) -> None:
    before = specs.config(spec_of(name="one", **options))
    hidden = {key: dict.fromkeys(options[key], WITHHELD) for key in ("env", "headers") if key in options}
    with pytest.raises(InvalidArgument) as caught:
        specs.changed(before, spec_of(**{"name": "one", **options, **hidden, **change}), None)
    assert [name for name, _ in caught.value.violations] == [field]
