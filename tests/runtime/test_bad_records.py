"""A store that holds a record which does not fit: the next hub starts, shows what fits of it, and marks it."""

import json
from typing import Any, cast

import pytest
from pydantic import TypeAdapter
from structlog.testing import capture_logs

from hubbubd.config import ServerConfig
from hubbubd.core.access import EVERYTHING
from hubbubd.core.calls.call_states import Call, CallState
from hubbubd.core.filters import CallFilter, RequestFilter, TaskFilter
from hubbubd.core.inbox.request_states import Origin, PendingRequest, RequestKind, RequestState
from hubbubd.core.servers.server_record import ServerRecord
from hubbubd.core.tasks import Task, TaskRole
from hubbubd.rpc.messages import api_records
from hubbubd.runtime.diagnostics.checks import Severity, describe_defects
from hubbubd.runtime.records import StoreContent, WatcherLimit
from hubbubd.runtime.tables import Tables
from hubbubd.store import Snapshot, Write

from .conftest import EPOCH, World, server, settle

BASIC: dict[str, dict[str, Any]] = {
    "task": json.loads(
        TypeAdapter(Task).dump_json(
            Task(
                id="x",
                server="one",
                fingerprint="f",
                role=TaskRole.RECEIVER,
                method="m",
                created_at=EPOCH,
                last_updated_at=EPOCH,
                ttl_ms=10**9,
            )
        )
    ),
    "call": json.loads(
        TypeAdapter(Call).dump_json(
            Call(
                id="x",
                server="one",
                method="ping",
                params=b"{}",
                principal="me",
                detached=True,
                timeout_s=1.0,
                max_s=1.0,
                created_at=EPOCH,
                completed_at=EPOCH,
                state=CallState.FAILED,
            )
        )
    ),
    "request": json.loads(
        TypeAdapter(PendingRequest).dump_json(
            PendingRequest(
                id="x",
                server="one",
                kind=RequestKind.ROOTS,
                origin=Origin.TASK,
                request=b"{}",
                created_at=EPOCH,
                deadline=EPOCH + 9e6,
                task_id=None,
            )
        )
    ),
}
HUGE = "1" + "0" * 400

SPOILT = [
    ("task", "ttl_ms", HUGE),
    ("task", "ttl_ms", "18446744073709551615"),
    ("task", "ttl_ms", "-5"),
    ("task", "poll_interval_ms", HUGE),
    ("task", "created_at", "3093527980800"),
    ("task", "created_at", "1e999"),
    ("task", "created_at", "NaN"),
    ("task", "last_updated_at", "null"),
    ("task", "status", '"paused"'),
    ("call", "created_at", "-1e308"),
    ("call", "completed_at", "1e308"),
    ("call", "max_s", "1e308"),
    ("call", "state", '"paused"'),
    ("call", "pending_ids", "7"),
    ("request", "deadline", "1e999"),
    ("request", "deadline", "3093527980800"),
    ("request", "state", '"paused"'),
    ("request", "origin", '"telepathy"'),
    ("request", "moments", '[{"at": 1e400, "what": "shown"}, {"at": 1, "what": "smelt"}]'),
    ("request", "claim", '{"id": "c", "by": "me", "expires_at": 1e308}'),
]


def text(noun: str, record_id: str, field: str = "", value: str = "") -> bytes:
    """A record as it might stand in a store, with one field written by hand."""
    basic = {**BASIC[noun], "id": record_id}
    parts = [f"{json.dumps(k)}: {value if k == field else json.dumps(v)}" for k, v in basic.items()]
    return ("{" + ", ".join(parts) + "}").encode()


def shown(hub: Any, noun: str) -> dict[str, Any]:
    match noun:
        case "task":
            return {record.id: api_records.task(record) for record in hub.tasks.select(TaskFilter())}
        case "call":
            return {record.id: api_records.call(record, EVERYTHING) for record in hub.calls.select(CallFilter())}
        case _:
            return {record.id: api_records.request(record) for record in hub.inbox.select(RequestFilter())}


@pytest.mark.parametrize(("noun", "field", "value"), SPOILT, ids=lambda value: value[:20])
async def test_the_hub_starts_with_a_record_that_does_not_fit_and_shows_all(
    world: World, noun: str, field: str, value: str
) -> None:
    good = [Write(f"{noun}/{name}", text(noun, name)) for name in "abc"]
    await world.store.inner.commit([good[0], Write(f"{noun}/bad", text(noun, "bad", field, value)), *good[1:]])
    with capture_logs() as logs:
        async with world.hub(server()) as hub:
            await settle()
            found = shown(hub, noun)
            assert set(found) == {"a", "b", "c", "bad"}
            assert field in found["bad"].defect
            assert not any(found[name].defect for name in "abc")
            (finding,) = describe_defects(hub.defects())
            assert (finding.about, finding.severity) == (f"record {noun}/bad", Severity.WARN)
    assert [line["key"] for line in logs if line["event"].startswith("record repaired")] == [f"{noun}/bad"]
    async with world.hub(server()) as hub:
        assert set(shown(hub, noun)) == {"a", "b", "c", "bad"}


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"7", b"{}", b"\xff", text("task", "bad", "role", '"nobody"')])
async def test_what_cannot_be_read_at_all_is_left_out_and_named(world: World, value: bytes) -> None:
    await world.store.inner.commit([Write("task/a", text("task", "a")), Write("task/bad", value)])
    async with world.hub(server()) as hub:
        assert set(shown(hub, "task")) == {"a"}
        assert [finding.about for finding in describe_defects(hub.defects())] == ["record task/bad"]


async def test_a_request_in_a_state_that_is_not_known_is_acted_on_by_nobody(world: World) -> None:
    await world.store.inner.commit([Write("request/bad", text("request", "bad", "state", '"paused"'))])
    async with world.hub(server()) as hub:
        assert hub.inbox.get("bad").state is RequestState.WITHDRAWN


@pytest.mark.parametrize("grants", ['[["god", ["*"]]]', "7", "null"])
async def test_a_token_whose_rights_cannot_be_read_lets_nobody_in(world: World, grants: str) -> None:
    async with world.hub() as hub:
        _, secret = await hub.tokens.create("n", [], by="me", ttl_s=None, may_name_others=False)
        (kept,) = (await world.store.snapshot("token/")).entries
        assert hub.tokens.all()
    spoilt = json.dumps({**json.loads(kept.value), "grants": json.loads(grants)}).encode()
    await world.store.inner.commit([Write(kept.key, spoilt)])
    async with world.hub() as hub:
        assert not hub.tokens.all()
        assert secret


@pytest.mark.parametrize(("option", "value"), [("ping_interval_s", 1e300), ("max_queued", 2**70), ("retries", 10**30)])
async def test_a_stored_server_whose_option_is_past_a_newer_bound_is_held_to_it(
    world: World, option: str, value: Any
) -> None:
    async with world.hub() as hub:
        await hub.servers.add(server())
        await settle()
        (kept,) = (await world.store.snapshot("server/")).entries
    record = json.loads(kept.value)
    record["config"][option] = value
    await world.store.inner.commit([Write(kept.key, json.dumps(record).encode())])
    async with world.hub() as hub:
        await settle()
        one = hub.servers.get("one")
        assert getattr(one.config, option) < value
        assert option in api_records.server(one, EVERYTHING).defect


@pytest.mark.parametrize("strange", [{"shiny": {"level": 7}}, {"oauth": {"shade": ["x"]}}])
async def test_a_stored_server_keeps_the_options_that_only_a_newer_version_knows(
    world: World, strange: dict[str, Any]
) -> None:
    async with world.hub() as hub:
        await hub.servers.add(server(url="https://mcp.example", command=None, transport="http", call_timeout_s=7))
        await settle()
        (kept,) = (await world.store.snapshot("server/")).entries
    record = json.loads(kept.value)
    record["config"] |= strange
    await world.store.inner.commit([Write(kept.key, json.dumps(record).encode())])
    async with world.hub() as hub:
        await settle()
        one = hub.servers.get("one")
        assert (one.config.call_timeout_s, one.connection.state.value, one.defect) == (7, "connected", "")
        await hub.servers.disconnect("one")
        await hub.servers.set_roots("one", ({"uri": "file:///x"},))
        if "oauth" not in strange:  # which no caller may change
            await hub.servers.change("one", lambda before: ServerConfig(**before.model_dump()))
        await settle()
    (kept,) = (await world.store.snapshot("server/")).entries
    written = json.loads(kept.value)["config"]
    for name, value in strange.items():
        assert {key: written[name].get(key) for key in value} == value


async def test_what_a_follower_cannot_do_with_one_record_the_other_followers_and_records_do_not_feel(
    world: World,
) -> None:
    async with world.hub(server()) as hub:
        seen: list[str] = []

        def refuses(_before: Task | None, _after: Task | None) -> None:
            raise OverflowError("no such time")

        table = hub.tasks._table
        table.follow(refuses)
        table.follow(lambda _before, after: seen.append(after.id if after else ""))
        task = TypeAdapter(Task).validate_json(text("task", "a"))
        with capture_logs() as logs:
            await hub.tasks.ledger.commit([table.change("a", task)])
            table.for_each(lambda task: refuses(None, task))
        assert seen == ["a"]
        assert [line["event"] for line in logs] == [
            "change follower failed: internal error",
            "record not loaded: internal error",
        ]


def test_half_a_character_in_an_option_of_a_server_is_kept_as_a_replacement() -> None:
    tables = Tables(StoreContent("id", Snapshot(0, (), ()), 0, WatcherLimit(1)))
    config = server(timeout_message="half \ud83d", roots=({"uri": "file:///x", "name": "\udc00"},))
    written = tables.servers.encode(ServerRecord(name="one", config=config, source="api", wanted=True))
    kept = json.loads(written)["config"]
    assert (kept["timeout_message"], kept["roots"][0]["name"]) == ("half \ufffd", "\ufffd")


def test_every_number_of_a_stored_record_has_bounds() -> None:
    unbound: list[str] = []

    def look(place: str, part: Any) -> None:
        if isinstance(part, dict):
            known = cast("dict[str, Any]", part)
            kind, told = known.get("type"), set(known)
            low = told & {"minimum", "exclusiveMinimum", "enum", "const"}
            high = told & {"maximum", "exclusiveMaximum", "enum", "const"}
            if kind in ("integer", "number") and not (low and high):
                unbound.append(place)
            for name, inner in known.items():
                look(f"{place}.{name}", inner)
        elif isinstance(part, list):
            for inner in cast("list[Any]", part):
                look(place, inner)

    empty = StoreContent("", Snapshot(0, (), ()), 0, WatcherLimit(0))
    for table in Tables(empty).all():
        look(table.noun, table.adapter.json_schema(mode="validation"))
    free = "$defs.Span.properties.attributes"  # of a span: told as they are, nothing is computed with them
    assert sorted({place for place in unbound if free not in place}) == []
