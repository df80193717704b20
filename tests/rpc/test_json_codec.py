"""Messages of the API as JSON: documents stand as they are, and whatever is no such message is refused by path."""

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf import json_format, text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import example, given
from hypothesis import strategies as st

from hubbub.v1 import admin_pb2, call_pb2, inbox_pb2, server_pb2
from hubbubd import payload
from hubbubd.errors import InvalidArgument, ResourceExhausted
from hubbubd.rpc.listeners.grpc_server import SERVICES
from hubbubd.rpc.messages import json_codec

from ..raising import raising

WELL_KNOWN = ("google.protobuf.Duration", "google.protobuf.Timestamp", "google.protobuf.FieldMask")
CALL, ANSWER, ADD = call_pb2.CallMethodRequest, inbox_pb2.AnswerPendingRequestRequest, server_pb2.AddServerRequest
LIST, UPDATE = call_pb2.ListCallsRequest, server_pb2.UpdateServerRequest
AUDIT = admin_pb2.ListAuditEntriesRequest
WHOLE = "must be a whole number from -2147483648 to 2147483647"
ONE_OF = "only one of accept, decline, cancel, text, result, reject, approve, deny may be given"
A_TIME = 'must be a time such as "2026-01-31T12:00:00Z"'
NAMES = 'must be names of fields such as "http,timeouts.call"'
NAME_OF_STATE = "must be the name of a value, such as 'CALL_STATE_CANCELLED'"
EXACT = [
    b'{"whole": 12345678901234567890123456789, "real": 0.1000000000000000055511151231257827, "past": 1e400}',
    b'{"twice": 1, "twice": 2}',
    b" [1, 2.50, -0, 1E5] ",
    rb'"\u00e9\u0065 \/ \ud83d\ude00"',
    rb'{"half": "\ud83d", "\ud800": ["\\ud800", "\\\udbff\udfff"]}',
    '"é 😀"'.encode(),
    b'"YWJj"',
    b"null",
    b"true",
    b"0",
    b'""',
    b"[" * 150 + b"]" * 150,
]
"""Documents that would not come back the same from a parser that makes numbers, objects and strings of them."""


def messages_of_the_api() -> list[Descriptor]:
    methods = [method for service in SERVICES.values() for method in service.methods]
    of_rpcs = {kind.full_name: kind for method in methods for kind in (method.input_type, method.output_type)}
    return [*of_rpcs.values(), server_pb2.RevisionConflict.DESCRIPTOR]


def all_fields(kind: Descriptor, seen: set[str] | None = None) -> Iterator[FieldDescriptor]:
    """The fields of a message and of all that it holds."""
    seen = set() if seen is None else seen
    if kind.full_name in seen:
        return
    seen.add(kind.full_name)
    for field in kind.fields:
        yield field
        if field.message_type is not None and field.message_type.full_name not in WELL_KNOWN:
            yield from all_fields(field.message_type, seen)


def refused(text: str | bytes, kind: type[Message] = CALL) -> InvalidArgument:
    with raising(InvalidArgument, "MALFORMED_REQUEST") as raised:
        json_codec.loads(text if isinstance(text, bytes) else text.encode(), kind)
    return raised.value


def test_every_field_of_bytes_is_a_document_but_the_chunks_of_a_backup_and_the_status_of_a_call() -> None:
    fields = {field.full_name: field for kind in messages_of_the_api() for field in all_fields(kind)}
    plain = [
        name
        for name, field in fields.items()
        if field.type == FieldDescriptor.TYPE_BYTES and not json_codec.is_document(field)
    ]
    assert plain == ["hubbub.v1.BackupStoreResponse.chunk", "hubbub.v1.StreamCallsResponse.Step.failed"]
    documents = [field for field in fields.values() if json_codec.is_document(field)]
    assert len(documents) > 10
    assert {field.type for field in documents} == {FieldDescriptor.TYPE_BYTES}


@pytest.mark.parametrize("document", EXACT)
def test_a_document_passes_both_ways_byte_for_byte(document: bytes) -> None:
    text = b'{"spec": {"server": "a", "params": ' + document + b' , "callId": "b"}}'
    read = json_codec.loads(text, CALL)
    assert read == CALL(spec=call_pb2.CallSpec(server="a", params=document.strip(), call_id="b"))
    assert document.strip() in json_codec.dumps(read)
    assert json_codec.loads(json_codec.dumps(read), CALL) == read
    assert payload.loads(read.spec.params) == payload.loads(document)


def test_no_document_is_left_out_where_that_can_be_and_null_where_not() -> None:
    assert json_codec.dumps(CALL(spec=call_pb2.CallSpec(server="a", params=b""))) == b'{"spec":{"server":"a"}}'
    assert json_codec.dumps(ANSWER(result=b"")) == b'{"result":null}'


def test_a_document_as_deep_as_the_hub_reads_any_is_written() -> None:
    deep = next(deep for deep in range(1, 2000) if not _is_read(b"[" * deep + b"]" * deep)) - 1
    document = b"[" * deep + b"]" * deep
    assert json_codec.dumps(call_pb2.Call(result=document)) == b'{"result":%s}' % document


def _is_read(document: bytes) -> bool:
    try:
        payload.loads(document)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("deep", [json_codec.MAX_DEPTH + 1, 1100, 100_000])
def test_a_document_that_nobody_reads_is_refused_in_words(deep: int) -> None:
    document = b"[" * deep + b"]" * deep
    with pytest.raises(ValueError, match="nests too deeply"):
        json_codec.dumps(call_pb2.Call(result=document))
    with pytest.raises(InvalidArgument, match="nests too deeply"):
        json_codec.loads(b'{"result":%s}' % document, call_pb2.Call)


def test_what_is_no_document_is_never_written_into_json() -> None:
    for wrong in (b"{", b'{} , "admin": true', b'"\xff"', b"NaN", b" "):
        with pytest.raises(ValueError):
            json_codec.dumps(call_pb2.Call(params=wrong))


def test_all_but_documents_is_the_json_of_protocol_buffers() -> None:
    status = admin_pb2.GetStatusResponse(version="1", pid=2**40)
    status.started_at.FromJsonString("2026-01-31T12:00:00.000001Z")
    call = call_pb2.Call(id="c", state=call_pb2.CALL_STATE_FAILED, trace_id="é")
    progress = [call_pb2.Progress(progress=at, total=0) for at in (0.1, 1e300, math.inf, -math.inf)]
    backup = admin_pb2.BackupStoreResponse(chunk=b"\xfb\xff\x00")
    for message in (status, call, backup, *progress):
        assert json.loads(json_codec.dumps(message)) == json_format.MessageToDict(message)
        assert json_codec.loads(json_format.MessageToJson(message).encode(), type(message)) == message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"spec": {"timeout": "1.000000005s"}}', "spec {timeout {seconds: 1 nanos: 5}}"),
        ('{"spec": {"as_task": true, "server": "é"}}', 'spec {as_task: true server: "é"}'),
        ('{"spec": {"timeout": null, "server": null, "callId": "\\u0061"}}', 'spec {call_id: "a"}'),
        ('{"spec": {"timeout": "0s"}}', "spec {timeout {}}"),
        ("{}", ""),
        (" \n{ }\t", ""),
        ("", ""),
        ('{"spec": {}}', "spec {}"),
        ('{"spec": null}', ""),
    ],
)  # fmt: skip
def test_requests_are_read_as_protocol_buffers_have_them(text: str, expected: str) -> None:
    assert json_codec.loads(text.encode(), CALL) == text_format.Parse(expected, CALL())


@pytest.mark.parametrize(
    ("written", "value"),
    [("7", 7), ('"7"', 7), ("7.0", 7), ("0.7e1", 7), ('"7e0"', 7), ("-0", 0), ("-1", -1), ("2147483647", 2**31 - 1)],
)
def test_whole_numbers_are_taken_in_every_notation(written: str, value: int) -> None:
    read = json_codec.loads(f'{{"pageSize": {written}}}'.encode(), call_pb2.ListCallsRequest)
    assert read.page_size == value


def test_integers_of_64_bits_keep_all_their_digits() -> None:
    for written in ("9007199254740993", '"9007199254740993"', "9007199254740993.0"):
        read = json_codec.loads(f'{{"expectedRevision": {written}}}'.encode(), server_pb2.RemoveServerRequest)
        assert read.expected_revision == 9007199254740993
    assert json_codec.dumps(read) == b'{"expectedRevision":"9007199254740993"}'


def test_bytes_are_taken_in_both_alphabets_of_base64_with_and_without_padding() -> None:
    for written in ("+/8A+w==", "-_8A-w==", "-_8A-w"):
        read = json_codec.loads(f'{{"chunk": "{written}"}}'.encode(), admin_pb2.BackupStoreResponse)
        assert read.chunk == b"\xfb\xff\x00\xfb"


def test_enums_are_taken_by_name_and_by_number() -> None:
    text = b'{"filter": {"states": ["CALL_STATE_QUEUED", 4, 77]}, "order": "ORDER_ASCENDING"}'
    read = json_codec.loads(text, call_pb2.ListCallsRequest)
    assert list(read.filter.states) == [1, 4, 77]
    assert json.loads(json_codec.dumps(read))["filter"]["states"] == ["CALL_STATE_QUEUED", "CALL_STATE_COMPLETED", 77]


def test_a_null_where_a_document_is_expected_is_the_document_null() -> None:
    assert json_codec.loads(b'{"spec": {"params": null}}', CALL).spec.params == b"null"
    assert json_codec.loads(b'{"accept": null, "result": null}', ANSWER) == ANSWER(result=b"null")


def test_a_null_where_a_list_of_documents_is_expected_is_none() -> None:
    roots = json_codec.loads(b'{"spec": {"roots": {"fixed": {"roots": null}}}}', ADD).spec.roots
    assert roots == server_pb2.Roots(fixed=server_pb2.Roots.Fixed())


@pytest.mark.parametrize(
    ("text", "path", "problem"),
    [
        ('{"spce": {}}', "spce", "unknown field; did you mean 'spec'?"),
        ('{"spec": {"server": "a", "callID": "b"}}', "spec.callID", "unknown field; did you mean 'callId'?"),
        ('{"spec": {"zzz": 1}}', "spec.zzz", "unknown field"),
        ('{"": 1}', '""', "unknown field"),
        ('{"spec": {"timeout": "1s", "timeout": "2s"}}', "spec.timeout", "is given twice"),
        ('{"spec": {"callId": "a", "call_id": "b"}}', "spec.call_id", "is given twice"),
        ('{"spec": {"callId": null, "callId": "b"}}', "spec.call_id", "is given twice"),
        ('{"spec": "a"}', "spec", "must be an object, not a string"),
        ('{"spec": []}', "spec", "must be an object, not an array"),
        ('{"spec": {"server": 3}}', "spec.server", "must be a string, not a number"),
        ('{"spec": {"server": {}}}', "spec.server", "must be a string, not an object"),
        ('{"spec": {"server": "\\ud800"}}', "spec.server", "has half of a surrogate pair, which is no character"),
        ('{"spec": {"asTask": "true"}}', "spec.as_task", "must be true or false, not a string"),
        ('{"spec": {"timeout": 3}}', "spec.timeout", 'must be a duration such as "1.5s", not a number'),
        ('{"spec": {"timeout": "3"}}', "spec.timeout", 'must be a duration such as "1.5s"'),
        ('{"spec": {"timeout": "999999999999999s"}}', "spec.timeout", 'must be a duration such as "1.5s"'),
    ],
)  # fmt: skip
def test_a_field_that_is_wrong_is_named_with_what_was_expected(text: str, path: str, problem: str) -> None:
    error = refused(text)
    assert error.violations == ((path, problem),)
    assert error.message == f"{path}: {problem}"


@pytest.mark.parametrize(
    ("kind", "text", "path", "problem"),
    [
        (ANSWER, '{"accept": {}, "decline": {}}', "decline", ONE_OF),
        (ANSWER, '{"result": null, "text": "x"}', "text", ONE_OF),
        (ADD, '{"spec": {"stdio": {"env": {"A": 1}}}}', "spec.stdio.env.A", "must be a string, not a number"),
        (ADD, '{"spec": {"stdio": {"env": {"A": "1", "A": "2"}}}}', "spec.stdio.env.A", "is given twice"),
        (ADD, '{"spec": {"stdio": {"env": {"A": null}}}}', "spec.stdio.env.A", "must be a string, not null"),
        (ADD, '{"spec": {"stdio": {"args": ["a", 1]}}}', "spec.stdio.args.1", "must be a string, not a number"),
        (ADD, '{"spec": {"stdio": {"args": "a"}}}', "spec.stdio.args", "must be an array, not a string"),
        (
            ADD,
            '{"spec": {"retry": {"backoff": ["1s", {}]}}}',
            "spec.retry.backoff.1",
            'must be a duration such as "1.5s", not an object',
        ),
        (
            ADD,
            '{"spec": {"intake": {"maxMessagesPerS": 1e400}}}',
            "spec.intake.max_messages_per_s",
            "is past the range of a double",
        ),
        (ADD, '{"spec": {"intake": {"maxMessagesPerS": "x"}}}', "spec.intake.max_messages_per_s", "must be a number"),
        (
            LIST,
            '{"filter": {"states": ["CALL_STATE_QUEUE"]}}',
            "filter.states.0",
            "CallState has no such value; did you mean 'CALL_STATE_QUEUED'?",
        ),
        (LIST, '{"filter": {"states": [true]}}', "filter.states.0", f"{NAME_OF_STATE}, not true or false"),
        (LIST, '{"pageSize": 1.5}', "page_size", WHOLE),
        (LIST, '{"pageSize": 2147483648}', "page_size", WHOLE),
        (LIST, '{"pageSize": 1e999999999999999999999}', "page_size", WHOLE),
        (LIST, '{"pageSize": "seven"}', "page_size", WHOLE),
        (LIST, '{"pageSize": ' + "9" * 10_000 + "}", "page_size", WHOLE),
        (AUDIT, '{"filter": {"earliestCreatedAt": "yesterday"}}', "filter.earliest_created_at", A_TIME),
        (UPDATE, '{"updateMask": ["http"]}', "update_mask", f"{NAMES}, not an array"),
        (UPDATE, '{"updateMask": "max_in_flight"}', "update_mask", NAMES),
        (admin_pb2.BackupStoreResponse, '{"chunk": "?"}', "chunk", "must be base64"),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_path(
    kind: type[Message], text: str, path: str, problem: str
) -> None:
    assert refused(text, kind).violations == ((path, problem),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "is not JSON: it ends too early"),
        (b'{"spec": {}} {}', "is not JSON: trailing characters (byte 14)"),
        (b'{"spec": {},}', "is not JSON: trailing comma in object (byte 12)"),
        (b'{"spec": {"params": {"x": NaN}}}', "is not JSON: invalid character (byte 26)"),
        (b'{"spec": {"params": Infinity}}', "is not JSON: invalid character (byte 20)"),
        (b'{"spec": {"params": {"x": 01}}}', "is not JSON: invalid number (byte 27)"),
        (b'{"spec": {"params": "\xff"}}', "is not JSON: byte 21 is not UTF-8"),
        (b'{"spec": {"params": "\xed\xa0\x80"}}', "is not JSON: byte 21 is not UTF-8"),
        (b'{"spec": {"params": "\\x"}}', "is not JSON: invalid escaped character (byte 22)"),
        (b"{'spec': {}}", "is not JSON"),
        (b"\xef\xbb\xbf{}", "is not JSON: invalid character (byte 0)"),
        (b"[]", "must be an object, not an array"),
        (b"null", "must be an object, not null"),
        (b'"{}"', "must be an object, not a string"),
        (b"7", "must be an object, not a number"),
        (b" ", "is not JSON: it ends too early"),
        (b"[" * 90_000, "nests too deeply"),
        (b'{"spec": {"params": ' + b"[" * 90_000 + b"]" * 90_000 + b"}}", "nests too deeply"),
        (b'{"\\ud800": 1}', "has a name with half of a surrogate pair, which is no character"),
    ],
)
def test_what_is_no_json_or_no_object_is_refused(text: bytes, said: str) -> None:
    assert refused(text).message.startswith(f"the request {said}")


def test_a_document_may_have_any_number_of_values_and_a_message_may_not() -> None:
    many = b"[" + b"0," * json_codec.MAX_VALUES + b"0]"
    assert json_codec.loads(b'{"spec": {"params": ' + many + b"}}", CALL).spec.params == many
    with pytest.raises(ResourceExhausted):
        json_codec.loads(b'{"filter": {"states": ' + many + b"}}", call_pb2.ListCallsRequest)


def test_an_unknown_name_of_any_length_is_refused() -> None:
    assert refused('{"' + "spec" * 100_000 + '": 1}').message.endswith("unknown field")


# Properties.

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_documents = st.sampled_from([each.strip() for each in EXACT]) | _values.map(lambda value: json.dumps(value).encode())
_paths = st.lists(st.sampled_from(["http", "timeouts.call_max", "queue", "tools.allow"]), max_size=3)
_SCALARS = {
    FieldDescriptor.CPPTYPE_STRING: st.text(st.characters(codec="utf-8"), max_size=8),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(allow_nan=False),
}


def value_of(field: FieldDescriptor, draw: Any) -> Any:
    if json_codec.is_document(field):
        return draw(_documents)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return draw(st.binary(max_size=9))
    if field.enum_type is not None:
        return draw(st.sampled_from([*field.enum_type.values_by_number, 77]))
    return draw(_SCALARS[field.cpp_type])


def fill(message: Any, draw: Any, depth: int = 0) -> None:
    kind = message.DESCRIPTOR
    match kind.full_name:
        case "google.protobuf.Duration":
            message.seconds, message.nanos = draw(st.integers(0, 10**11)), draw(st.integers(0, 10**9 - 1))
        case "google.protobuf.Timestamp":
            message.seconds, message.nanos = draw(st.integers(-(10**10), 10**11)), draw(st.integers(0, 10**9 - 1))
        case "google.protobuf.FieldMask":
            message.paths.extend(draw(_paths))
        case _:
            few = draw(st.lists(st.sampled_from(list(kind.fields)), max_size=6)) if kind.fields else []
            for field in few:
                if depth < 4 or field.message_type is None:
                    set_field(message, field, draw, depth)


def set_field(message: Any, field: FieldDescriptor, draw: Any, depth: int) -> None:
    values = json_codec.map_value_field(field)
    if values is not None:
        getattr(message, field.name)[draw(st.text(st.characters(codec="utf-8"), max_size=5))] = value_of(values, draw)
    elif field.message_type is not None:
        inner = getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name)
        inner.SetInParent()
        fill(inner, draw, depth + 1)
    elif field.is_repeated:
        getattr(message, field.name).append(value_of(field, draw))
    else:
        setattr(message, field.name, value_of(field, draw))


@st.composite
def api_messages(draw: Any) -> Message:
    message = GetMessageClass(draw(st.sampled_from(messages_of_the_api())))()
    fill(message, draw)
    return message


@given(api_messages())
def test_a_message_that_was_written_is_read_as_it_was(message: Message) -> None:
    text = json_codec.dumps(message)
    json.loads(text)
    assert json_codec.loads(text, type(message)).SerializeToString(deterministic=True) == message.SerializeToString(
        deterministic=True
    )


_KINDS = [GetMessageClass(kind) for kind in messages_of_the_api()]
_ALL_NAMES = {name for kind in messages_of_the_api() for f in all_fields(kind) for name in (f.json_name, f.name)}
_names = st.sampled_from(sorted(_ALL_NAMES))
_guesses = st.recursive(
    _values | st.sampled_from(["1s", "ORDER_ASCENDING", "NaN", "2026-01-01T00:00:00Z", "9" * 50, "http"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(_KINDS), _guesses | st.dictionaries(_names, _guesses, max_size=3), st.data())
@example(CALL, {"spec": {"timeout": "-" + "9" * 400 + "s"}}, None)
@example(CALL, {"spec": {"timeout": "1." + "9" * 400 + "s"}}, None)
@example(CALL, {"spec": {"timeout": "\x00s"}}, None)
@example(admin_pb2.ListAuditEntriesRequest, {"filter": {"earliestCreatedAt": "0000-00-00T99:99:99+99:99"}}, None)
@example(admin_pb2.ListAuditEntriesRequest, {"filter": {"earliestCreatedAt": "9999-12-31T23:59:59-23:59"}}, None)
def test_any_input_is_a_message_or_refused_by_a_classified_error(kind: type[Message], value: Any, data: Any) -> None:
    text = json.dumps(value).encode()
    if data is not None and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.binary(max_size=3)) + text[at + data.draw(st.integers(0, 3)) :]
    with suppress(InvalidArgument):
        message = json_codec.loads(text, kind)
        read_again = json_codec.loads(json_codec.dumps(message), kind)
        assert read_again.SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)
