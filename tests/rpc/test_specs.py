"""Specs of the API and configurations of servers: what one says the other says, and secrets stay where they were."""

import string
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from hypothesis import given
from hypothesis import strategies as st

from hubbub.v1 import options_pb2, server_pb2
from hubbub_client.data import specs as library
from hubbub_shared.spec_fields import SPEC_FIELDS, SPEC_PATHS
from hubbubd.config import ServerConfig
from hubbubd.config.servers import server
from hubbubd.config.servers.options import FILES_ONLY
from hubbubd.config.servers.server import REVISIONS
from hubbubd.config.servers.urls import WITHHELD
from hubbubd.errors import InvalidArgument
from hubbubd.rpc import specs

from .conftest import spec_of

TEXT = st.text(string.ascii_letters + string.digits + " *?._-é", min_size=1, max_size=12)
NAMES = st.text(string.ascii_letters, min_size=1, max_size=8)
SECRETS = st.dictionaries(NAMES, TEXT, min_size=1, max_size=3)
LISTS = st.lists(TEXT, min_size=1, max_size=3)
ROOTS = st.lists(
    st.fixed_dictionaries(
        {"uri": TEXT.map("file:///{}".format)}, optional={"name": TEXT, "_meta": st.just({"x": [1]})}
    ),
    max_size=2,
)

ENDPOINT = {"name", "command", "args", "env", "cwd", "url", "headers", "transport"}
SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("confirm", "deny_tools"), LISTS),  # an empty one is as none
    "protocol": st.sampled_from(REVISIONS),
    "roots": st.just("ask") | ROOTS,
    "timeout_message": st.text(string.printable, max_size=20),
}


def values_of(schema: Any) -> st.SearchStrategy[Any]:
    """What may be given for an option, by its JSON schema."""
    match schema:
        case {"anyOf": [first, {"type": "null"}]}:
            return values_of(first)
        case {"type": "boolean"}:
            return st.booleans()
        case {"type": "integer", "minimum": low, "maximum": high}:
            return st.integers(low, high)
        case {"type": "number", "maximum": high}:
            lowest = round(schema["minimum"] * 1e6) if "minimum" in schema else 1
            return st.integers(lowest, round(high * 1e6)).map(lambda micros: micros / 1e6)
        case {"type": "array", "items": items}:
            return st.lists(values_of(items), min_size=schema.get("minItems", 0), max_size=3)
        case {"type": "string"}:
            return TEXT
        case _:
            raise AssertionError(schema)


SCHEMAS = ServerConfig.model_json_schema()["properties"]
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    key: SPECIAL[key] if key in SPECIAL else values_of(SCHEMAS[key])
    for key, option in server.OPTIONS.items()
    if key not in ENDPOINT and option.limit is not FILES_ONLY
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
"""Fields of a spec and their keys in a configuration file. Not to be changed: callers rely on both."""


def test_the_library_knows_every_key_of_a_configuration() -> None:
    assert set(library.KEYS) == set(SPEC_PATHS)


def test_each_field_of_a_spec_has_the_key_that_it_was_agreed_on_with() -> None:
    assert AGREED.items() <= {field.path: key for key, field in SPEC_FIELDS.items()}.items()


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
    configured = specs.config_of(spec_of(**options))
    shown, withheld = specs.render_spec(configured)
    assert specs.apply_update(configured, shown, None) == configured
    assert specs.render_spec(specs.apply_update(configured, shown, None)) == (shown, withheld)


@given(SPECS | WHOLE)
def test_nothing_of_a_spec_is_lost_in_the_library(options: dict[str, Any]) -> None:
    given = {"transport": "http", **options} if "url" in options else options
    assert library.from_message(spec_of(**options)) == library.ServerSpec(**given)
    configured = specs.config_of(spec_of(**options))
    read = library.from_message(*specs.render_spec(configured))
    assert specs.apply_update(configured, library.to_message(read), None) == configured


@given(SPECS | WHOLE)
def test_what_a_spec_says_is_what_the_server_is_configured_with(options: dict[str, Any]) -> None:
    plain = specs.config_of(spec_of(**options)).model_dump()
    expected = ServerConfig.model_validate(options).model_dump()
    assert plain == expected


@given(SPECS | WHOLE)
def test_no_secret_is_shown_and_each_is_said_to_be_withheld(options: dict[str, Any]) -> None:
    shown, withheld = specs.render_spec(specs.config_of(spec_of(**options)))
    hidden = {f"stdio.env.{name}" for name in options.get("env", ())}
    hidden |= {f"http.headers.{name}" for name in options.get("headers", ())}
    hidden |= {"http.url?"} if "?" in options.get("url", "") else set()
    assert set(withheld) == hidden
    assert {*shown.stdio.env.values(), *shown.http.headers.values()} <= {WITHHELD}
    assert "secret" not in shown.http.url


@given(SPECS, st.data())
def test_an_update_of_one_part_leaves_all_others_as_they_are(options: dict[str, Any], data: st.DataObject) -> None:
    before = specs.config_of(spec_of(**options))
    key = data.draw(st.sampled_from(sorted(OPTIONS)))
    value = data.draw(OPTIONS[key])
    only = spec_of(name="one", **{key: value})
    after = specs.apply_update(before, only, FieldMask(paths=[SPEC_PATHS[key]]))
    fresh = ServerConfig.model_validate({"name": "one", "command": "x", key: value})
    assert getattr(after, key) == getattr(fresh, key)
    assert after.model_copy(update={key: None}) == before.model_copy(update={key: None})


def test_a_part_that_is_left_out_takes_its_default_and_a_group_is_taken_whole() -> None:
    before = specs.config_of(spec_of(name="one", command="x", retries=3, backoff_s=[5], call_timeout_s=7))
    after = specs.apply_update(before, spec_of(name="one", retries=4), FieldMask(paths=["retry", "timeouts.call"]))
    assert (after.retries, after.backoff_s, after.call_timeout_s) == (4, (1, 2, 4), 300)


@pytest.mark.parametrize(
    "path", ["", "name", "endpoint", "retry.none", "tools.allow.values.x", "stdio.env.A", "é", "."]
)
def test_a_path_that_is_no_part_of_a_spec_is_refused(path: str) -> None:
    before = specs.config_of(spec_of(name="one", command="x"))
    with pytest.raises(InvalidArgument) as caught:
        specs.apply_update(before, spec_of(name="one"), FieldMask(paths=[path]))
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
    before = specs.config_of(spec_of(name="one", **options))
    hidden = {key: dict.fromkeys(options[key], WITHHELD) for key in ("env", "headers") if key in options}
    with pytest.raises(InvalidArgument) as caught:
        specs.apply_update(before, spec_of(**{"name": "one", **options, **hidden, **change}), None)
    assert [name for name, _ in caught.value.violations] == [field]
