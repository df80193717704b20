"""What a host's revision has is what it gets: the table agrees with the SDK's schemas, and crossed results fit them."""

import json
from typing import Any

import mcp_types._v2025_11_25 as v2025
import mcp_types._v2026_07_28 as v2026
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import methods as tables
from pydantic import BaseModel, TypeAdapter

from hubbubd import payload
from hubbubd.core.servers.catalog import CatalogKind
from hubbubd.downstream.protocol import revisions
from hubbubd.downstream.protocol.messages import Refusal
from hubbubd.downstream.protocol.revisions import RevisionMember
from hubbubd.errors import PeerError

from ..runtime.peer import Outcome, Sent
from .conftest import NEW, OLD, Opened, Refused

TEXT = {"content": [{"type": "text", "text": 'a "resultType" of 1.50'}]}
CONTENTS = {"contents": [{"uri": "x://a", "text": "a"}]}
PROMPT = {"messages": [{"role": "user", "content": {"type": "text", "text": "a"}}]}
COMPLETION = {"completion": {"values": ["a"]}}
SAMPLES = {
    "tools/call": TEXT,
    "prompts/get": PROMPT,
    "resources/read": CONTENTS,
    "completion/complete": COMPLETION,
}

NAMES = ["resultType", "ttlMs", "cacheScope", "structuredContent"]


def members(model: type[BaseModel]) -> set[str]:
    """The names of a type's members on the wire."""
    return {field.alias or name for name, field in model.model_fields.items()}


def fits(method: str, revision: str, result: Any) -> None:
    """Fails unless a result is one of its revision."""
    shape: Any = tables.SERVER_RESULTS[method, revision]
    TypeAdapter(shape).validate_python(result, by_name=False)


EARLIER = {"extensions"}
"""Members that servers and hosts have of earlier revisions, too, though the schemas do not (MCP Apps)."""


@pytest.mark.parametrize(
    ("table", "name"),
    [
        (revisions.RESULTS["tools/call"], "CallToolResult"),
        (revisions.RESULTS["prompts/get"], "GetPromptResult"),
        (revisions.RESULTS["resources/read"], "ReadResourceResult"),
        (revisions.RESULTS["completion/complete"], "CompleteResult"),
        (revisions.CACHED, "ListToolsResult"),
        (revisions.CACHED, "ListPromptsResult"),
        (revisions.CACHED, "ListResourcesResult"),
        (revisions.CACHED, "ListResourceTemplatesResult"),
        (revisions.ENTRIES[CatalogKind.TOOL], "Tool"),
        (revisions.ENTRIES[CatalogKind.PROMPT], "Prompt"),
        (revisions.ENTRIES[CatalogKind.RESOURCE], "Resource"),
        (revisions.ENTRIES[CatalogKind.TEMPLATE], "ResourceTemplate"),
        (revisions.CAPABILITIES, "ServerCapabilities"),
        (revisions.SERVER_INFO, "Implementation"),
    ],
)
def test_the_table_has_each_member_that_the_schemas_of_two_revisions_do_not_share(
    table: tuple[RevisionMember, ...], name: str
) -> None:
    old, new = (members(getattr(schemas, name)) for schemas in (v2025, v2026))
    assert {each.name for each in table if each.is_known_in(OLD) != each.is_known_in(NEW)} == (old ^ new) - EARLIER
    for each in table:
        assert (each.name in old, each.name in new) == (each.is_known_in(OLD), each.is_known_in(NEW))


@pytest.mark.parametrize("method", SAMPLES)
@pytest.mark.parametrize("revision", [OLD, NEW])
@pytest.mark.parametrize("origin", [OLD, NEW, None])
def test_a_result_fits_the_schema_of_the_host_whatever_the_server_speaks(
    method: str, revision: str, origin: str | None
) -> None:
    put_in = {each.name for each in revisions.RESULTS[method]}
    added = {"resultType": "complete", "ttlMs": 5, "cacheScope": "public"}
    sent = SAMPLES[method] | ({name: added[name] for name in put_in} if origin == NEW else {}) | {"x-own": 1}
    got = json.loads(revisions.render_result(method, payload.dumps(sent), revision, origin))
    fits(method, revision, got)
    assert {name: value for name, value in got.items() if name not in put_in} == SAMPLES[method] | {"x-own": 1}
    assert bool(put_in & got.keys()) == (revision == NEW)
    if origin == NEW == revision:
        assert got == sent


@pytest.mark.parametrize(("revision", "origin"), [(OLD, OLD), (NEW, NEW), (OLD, "2025-06-18"), ("2024-11-05", OLD)])
def test_a_result_between_two_of_a_family_is_not_even_read(revision: str, origin: str) -> None:
    raw = b'{"resultType" : "odd", "big": 123456789012345678901234567890, "float": 1.50'
    assert revisions.render_result("tools/call", raw, revision, origin) == raw


@pytest.mark.parametrize(("revision", "origin"), [(OLD, NEW), (NEW, OLD)])
def test_numbers_and_unknown_members_cross_unchanged(revision: str, origin: str) -> None:
    sent = {**TEXT, "structuredContent": {"big": 2**70, "float": 0.1, "resultType": "own"}, "_meta": {"a": None}}
    crossed = sent | ({"resultType": "complete"} if origin == NEW else {})
    got = json.loads(revisions.render_result("tools/call", payload.dumps(crossed), revision, origin))
    got.pop("resultType", None)
    assert got == sent


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@given(
    method=st.sampled_from(sorted(SAMPLES)),
    own=st.dictionaries(st.text(), VALUES, max_size=6),
    revision=st.sampled_from(["2024-11-05", OLD, NEW]),
    origin=st.sampled_from(["2025-06-18", OLD, NEW, None]),
)
def test_all_that_a_revision_may_have_arrives_as_it_was_sent(
    method: str, own: dict[str, Any], revision: str, origin: str | None
) -> None:
    own = {name: value for name, value in own.items() if name not in NAMES}
    arrived = payload.loads(revisions.render_result(method, payload.dumps(SAMPLES[method] | own), revision, origin))
    assert {name: value for name, value in arrived.items() if name not in NAMES} == payload.loads(
        payload.dumps(SAMPLES[method] | own)
    )


def test_a_member_of_the_servers_own_is_not_doubled() -> None:
    got = revisions.render_result("tools/call", b'{"content":[],"resultType":"complete"}', NEW, OLD)
    assert got.count(b"resultType") == 1
    got = revisions.render_result("resources/read", b'{"contents":[],"ttlMs":5000}', NEW, OLD)
    assert payload.loads(got)["ttlMs"] == 5000


@pytest.mark.parametrize("content", [[1], "text", 7, None])
def test_structured_content_that_is_no_object_is_of_the_newer_revision(content: object) -> None:
    sent = payload.dumps({**TEXT, "structuredContent": content, "resultType": "complete"})
    assert json.loads(revisions.render_result("tools/call", sent, OLD, NEW)) == TEXT
    assert revisions.render_result("tools/call", sent, NEW, NEW) == sent


TOOL = {"name": "t", "inputSchema": {"type": "object"}, "x-own": 1}


@pytest.mark.parametrize(
    ("extra", "kept"),
    [
        ({"execution": {"taskSupport": "optional"}}, {OLD}),
        ({"icons": [{"src": "data:,"}]}, {OLD, NEW}),
        ({"outputSchema": {"type": "object"}}, {"2025-03-26", OLD, NEW}),
        ({"outputSchema": {"type": "array"}}, {NEW}),
        ({"title": "execution"}, {"2025-03-26", OLD, NEW}),
    ],
)
@pytest.mark.parametrize("revision", ["2025-03-26", OLD, NEW])
def test_a_tool_is_listed_with_what_the_revision_has(extra: dict[str, Any], kept: set[str], revision: str) -> None:
    got = json.loads(revisions.render_entry(CatalogKind.TOOL, payload.dumps(TOOL | extra), revision))
    assert got == (TOOL | extra if revision in kept else TOOL)
    if revision != "2025-03-26":
        (v2026 if revision == NEW else v2025).Tool.model_validate(got)


@pytest.mark.parametrize("said", ["required", "optional", "forbidden"])
def test_no_host_has_to_make_a_task_of_a_call_as_the_hub_does_that_itself(said: str) -> None:
    tool = TOOL | {"execution": {"taskSupport": said, "x-own": 1}}
    shown = "optional" if said == "required" else said
    got = json.loads(revisions.render_entry(CatalogKind.TOOL, payload.dumps(tool), OLD))
    assert got == tool | {"execution": {"taskSupport": shown, "x-own": 1}}


@pytest.mark.parametrize(
    ("sent", "revision", "code"),
    [
        (Refusal(-32002, "none", {"uri": "own://a"}), NEW, -32602),
        (Refusal(-32002, "none"), NEW, -32602),
        (Refusal(-32002, "none", {"uri": "own://a"}), OLD, -32002),
        (Refusal(-32602, "none", {"uri": "own://a"}), OLD, -32002),
        (Refusal(-32602, "none", {"uri": "own://a"}), NEW, -32602),
    ],
)
def test_a_resource_that_is_not_there_is_said_so_as_the_revision_does(sent: Refusal, revision: str, code: int) -> None:
    got = revisions.render_read_error(sent, "host://a", "own://a", revision)
    assert (got.code, got.data["uri"]) == (code, "host://a")


@pytest.mark.parametrize("sent", [Refusal(-32602, "wrong", {"at": 1}), Refusal(-32602, "wrong"), Refusal(-1, "no", 7)])
def test_another_error_stays_as_it_is(sent: Refusal) -> None:
    assert all(revisions.render_read_error(sent, "host://a", "own://a", revision) is sent for revision in (OLD, NEW))


# Through the endpoint


@pytest.mark.parametrize("said", [{"name": "peer"}, {}, {"name": "peer", "version": 2}])
async def test_a_server_that_does_not_say_which_it_is_has_a_name_and_a_version_for_hosts(
    place: Opened, said: dict[str, Any]
) -> None:
    async with place(info=said) as at:
        shown = {"name": said.get("name", "one"), "version": "0"}
        assert (await at.old().ask("initialize"))["serverInfo"] == shown
        assert (await at.new().ask("server/discover"))["_meta"]["io.modelcontextprotocol/serverInfo"] == shown


@pytest.mark.parametrize("revision", ["2025-06-18", OLD, NEW])
@pytest.mark.parametrize("protocol", [OLD, NEW])
async def test_every_result_of_an_endpoint_fits_its_schema(place: Opened, protocol: str, revision: str) -> None:
    offered = {
        "tools/list": {
            "tools": [TOOL | {"execution": {"taskSupport": "forbidden"}, "outputSchema": {"type": "object"}}]
        },
        "prompts/list": {"prompts": [{"name": "p"}]},
        "resources/list": {"resources": [{"name": "r", "uri": "x://a"}]},
        "resources/templates/list": {"resourceTemplates": [{"name": "t", "uriTemplate": "x://{a}"}]},
    }
    stamp = {"resultType": "complete"} if protocol == NEW else {}

    async def listing(sent: Sent) -> Outcome:
        return offered[sent.method] | stamp | ({"ttlMs": 5000, "cacheScope": "public"} if stamp else {})

    async def behaviour(sent: Sent) -> Outcome:
        cached = {"ttlMs": 7, "cacheScope": "public"} if stamp and sent.method == "resources/read" else {}
        return SAMPLES[sent.method] | stamp | cached

    capabilities = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}, "tasks": {}, "extensions": {}}
    async with place(
        protocol, capabilities=capabilities, listing=listing, behaviour=behaviour, instructions="Be kind."
    ) as at:
        host = at.host(revision)
        introduction = "server/discover" if revision == NEW else "initialize"
        results = {method: await host.ask(method) for method in [introduction, *offered]}
        for method, params in {
            "tools/call": {"name": "t"},
            "prompts/get": {"name": "p"},
            "resources/read": {"uri": "x://a"},
            "completion/complete": {"ref": {"type": "ref/prompt", "name": "p"}},
        }.items():
            results[method] = await host.ask(method, **params)
    for method, result in results.items():
        fits(method, revision, result)
    assert results[introduction]["instructions"] == "Be kind."
    assert set(results[introduction]["capabilities"]) == {"tools", "prompts", "resources"} | (
        {"extensions"} if revision == NEW else {"tasks"} if revision == "2025-11-25" else set()
    )
    lived = {results[method].get("ttlMs") for method in offered}
    assert lived == ({None} if revision != NEW else {5000} if protocol == NEW else {0})
    assert results["resources/read"].get("ttlMs") == (None if revision != NEW else 7 if protocol == NEW else 0)


@pytest.mark.parametrize(("protocol", "code"), [(OLD, -32002), (NEW, -32602)])
async def test_a_read_of_nothing_is_refused_as_the_host_knows_it(place: Opened, protocol: str, code: int) -> None:
    async def nothing(sent: Sent) -> Outcome:
        raise PeerError(code, "Resource not found", {"uri": sent.params["uri"]})

    async with place(protocol, behaviour=nothing) as at:
        for revision, expected in ((OLD, -32002), (NEW, -32602)):
            with pytest.raises(Refused) as refused:
                await at.host(revision).ask("resources/read", uri="x://none")
            assert (refused.value.code, refused.value.data) == (expected, {"uri": "x://none"})
