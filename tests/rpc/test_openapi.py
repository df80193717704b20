"""The description of the API over Connect: valid, whole, and true of what is sent and answered."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from hubbub.v1 import call_pb2, inbox_pb2, server_pb2
from hubbub_frontend import error_help
from hubbubd.rpc.listeners.grpc_server import SERVICES
from hubbubd.rpc.messages import json_codec

from .test_json_codec import api_messages, messages_of_the_api

REPOSITORY = Path(__file__).parents[2]
DOCUMENT: dict[str, Any] = json.loads((REPOSITORY / "protos" / "hubbub" / "v1" / "openapi.json").read_text())
REGISTRY: Registry[Any] = Registry[Any]().with_resource("urn:api", DRAFT202012.create_resource(DOCUMENT))


def schema(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"urn:api#/components/schemas/{name}"}, registry=REGISTRY)


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    return ((path, item["post"]) for path, item in DOCUMENT["paths"].items())


def fits(message: Message) -> None:
    schema(message.DESCRIPTOR.full_name).validate(json.loads(json_codec.dumps(message)))


def test_the_document_is_openapi() -> None:
    OpenAPIV31SpecValidator(DOCUMENT).validate()
    assert DOCUMENT["openapi"].startswith("3.1.")


def test_every_rpc_is_in_it_with_its_messages_but_those_whose_requests_stream() -> None:
    methods = [method for service in SERVICES.values() for method in service.methods]
    ours = [method for method in methods if not method.client_streaming]
    served = {f"/{method.containing_service.full_name}/{method.name}": method for method in ours}
    described = dict(operations())
    assert {path for path in described if not path.startswith("/grpc.health.v1.")} == set(served)
    assert {method.name for method in methods if method.client_streaming} == {"Serve", "StreamCalls", "Work"}
    for path, method in served.items():
        kind = "application/connect+json" if method.server_streaming else "application/json"
        sent = described[path]["requestBody"]["content"][kind]["schema"]["$ref"]
        answered = described[path]["responses"]["200"]["content"][kind]["schema"]["$ref"]
        assert sent == f"#/components/schemas/{method.input_type.full_name}"
        assert answered == f"#/components/schemas/{method.output_type.full_name}"
        assert described[path]["description"]


def test_what_needs_no_credential_says_so_and_all_else_needs_one() -> None:
    assert DOCUMENT["security"] == [{"bearer": []}]
    assert {path for path, item in operations() if "security" in item} == {
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/List",
        "/grpc.health.v1.Health/Watch",
    }


def test_every_field_is_described_by_its_comment() -> None:
    for kind in messages_of_the_api():
        properties = DOCUMENT["components"]["schemas"][kind.full_name]["properties"]
        assert set(properties) == {field.json_name for field in kind.fields}
        assert all(each.get("description") for each in properties.values()), kind.full_name


@given(api_messages())
def test_what_the_hub_writes_fits_its_description(message: Message) -> None:
    told = json_codec.dumps(message)
    if b":77" not in told and b"[77" not in told and b",77" not in told:  # a value that no enum of this version has
        fits(message)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (call_pb2.CallMethodRequest, {"spec": {"servr": "a"}}),
        (call_pb2.CallMethodRequest, {"spec": {"server": 1}}),
        (call_pb2.CallMethodRequest, {"spec": {"timeout": 3}}),
        (call_pb2.ListCallsRequest, {"order": "ASCENDING"}),
        (call_pb2.ListCallsRequest, {"pageSize": 2**31}),
        (server_pb2.AddServerRequest, {"spec": {"stdio": {"args": "a"}}}),
        (inbox_pb2.AnswerPendingRequestRequest, {"accept": []}),
    ],
)
def test_what_the_hub_refuses_does_not_fit(kind: type[Message], body: Any) -> None:
    assert not schema(kind.DESCRIPTOR.full_name).is_valid(body)


def test_documents_are_any_json() -> None:
    for document in (None, 1, "text", [], {"a": [1.5]}):
        schema("hubbub.v1.CallSpec").validate({"server": "a", "params": document})


def test_what_the_document_shows_fits() -> None:
    shown = (REPOSITORY / "docs" / "connect.md").read_text().replace("""'"$ID"'""", "q")
    methods = {f"{m.containing_service.name}/{m.name}": m for each in SERVICES.values() for m in each.methods}
    [lunch] = re.findall(r"^LUNCH='(.+)'$", shown, re.MULTILINE)
    sent = [("CallService/StartCall", lunch), *re.findall(r"hub (\w+/\w+) '(\{.+?\})'", shown)]
    assert len(sent) == 3
    for method, body in sent:
        schema(methods[method].input_type.full_name).validate(json.loads(body))


def test_every_reason_that_is_explained_is_named() -> None:
    known = DOCUMENT["components"]["schemas"]["ErrorInfo"]["properties"]["reason"]["anyOf"][0]["enum"]
    assert set(known) == set(error_help.entries())


def test_all_messages_of_the_api_have_a_schema() -> None:
    for kind in messages_of_the_api():
        fits(GetMessageClass(kind)())
