"""`hubbub fleet`: what people and scripts see of a hub of several members, and what they change."""

import signal
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

import hubbub_client
from hubbub.v1 import admin_pb2
from hubbub.v1 import fleet_pb2 as pb
from hubbub_client.services.admin import Admin

A = {"name": "a", "state": pb.MEMBER_STATE_LIVE, "address": "a.example:7878", "version": "1.0", "life": 1}
B = {**A, "name": "b", "address": "b.example:7878", "life": 2}


def fleet(*members: dict[str, Any], unowned: tuple[str, ...] = (), **more: Any) -> pb.GetFleetResponse:
    return pb.GetFleetResponse(
        members=[pb.FleetMember(silent=Duration(nanos=250_000_000), **each) for each in members],
        unowned=[pb.UnownedServer(server=name, why="start b", since=Duration(seconds=40)) for name in unowned],
        member="a",
        **more,
    )


def says(hub: Any, rpc: str, *answers: Any) -> None:
    """What the hub says to an RPC, one after the other; the last one again and again."""
    left = list(answers)

    def say(_: Any) -> Any:
        return left.pop(0) if len(left) > 1 else left[0]

    hub.replies[rpc] = say


def states(hub: Any, *found: pb.GetFleetResponse) -> None:
    says(hub, "GetFleet", *found)


async def test_status_is_one_object_for_scripts(hub: Any, hubbub: Any) -> None:
    busy = {**A, "servers": ["one", "two"], "position": 7, "lag": 2, "schema": 3}
    states(hub, fleet(busy, B, unowned=("tool",), revision=9))
    ran = await hubbub("fleet", "status")
    (it,) = ran.lines
    fields = ["members", "unowned", "member", "clock_offset_ms", "revision", "schema", "required_schema"]
    assert (ran.status, list(it)) == (0, fields)
    assert it["members"][0] == {
        "name": "a",
        "state": "live",
        "address": "a.example:7878",
        "version": "1.0",
        "servers": ["one", "two"],
        "life": 1,
        "forward": None,
        "position": 7,
        "lag": 2,
        "silent_ms": 250,
        "overdue": False,
        "schema": 3,
    }
    assert it["unowned"] == [{"server": "tool", "why": "start b", "since_ms": 40_000}]


async def test_people_see_who_has_what_and_what_is_wrong(hub: Any, hubbub: Any) -> None:
    gone = {**B, "state": pb.MEMBER_STATE_GONE}
    offset = Duration(seconds=-3)
    states(hub, fleet({**A, "servers": ["one"]}, gone, unowned=("tool",), clock_offset=offset))
    ran = await hubbub("fleet", "status", json=False)
    assert all(word in ran.out for word in ("a.example:7878", "one", "gone", "tool", "40 s", "start b"))
    assert "the clock of a differs from the database's by 3.0 s" in ran.err


async def test_move_waits_until_somebody_has_the_server_and_says_who(hub: Any, hubbub: Any) -> None:
    says(hub, "MoveServer", pb.MoveServerResponse(member="b", revision=5))
    before = fleet({**A, "servers": ["one"]}, B, revision=4)
    states(hub, before, fleet(A, B, unowned=("one",), revision=5), fleet(A, {**B, "servers": ["one"]}, revision=6))
    ran = await hubbub("fleet", "move", "one", "b")
    assert (ran.status, ran.lines) == (0, [{"server": "one", "member": "b"}])
    (asked,) = hub.requests("MoveServer")
    assert (asked.server, asked.member) == ("one", "b")
    assert len(hub.requests("GetFleet")) == 3


@pytest.mark.parametrize(
    ("words", "owner", "status", "said"),
    [
        (("one", "b"), "a", 1, "it was meant for b, which did not take it"),
        (("one",), "a", 0, "it was meant for b, which did not take it"),
        (("one", "b", "--timeout", "0"), "", 1, "nobody has one after 0 s; see: hubbub"),
    ],
)
async def test_move_says_when_another_one_or_nobody_has_it(
    hub: Any, hubbub: Any, words: tuple[str, ...], owner: str, status: int, said: str
) -> None:
    says(hub, "MoveServer", pb.MoveServerResponse(member="b", revision=5))
    states(hub, fleet(*({**each, "servers": ["one"] * (each["name"] == owner)} for each in (A, B)), revision=6))
    ran = await hubbub("fleet", "move", *words, json=False)
    assert (ran.status, said in ran.err) == (status, True)


async def test_drain_waits_until_the_member_has_nothing_left(hub: Any, hubbub: Any) -> None:
    says(hub, "DrainMember", pb.DrainMemberResponse(member="b"))
    b = {**B, "state": pb.MEMBER_STATE_DRAINING}
    states(hub, fleet(A, {**b, "servers": ["one", "two"]}), fleet(A, {**b, "servers": ["two"]}), fleet(A, b))
    ran = await hubbub("fleet", "drain", "b", json=False)
    assert (ran.status, ran.out) == (0, "b has no servers left\n")
    assert ran.err.splitlines() == ["b has 2 servers left", "b has 1 server left"]


async def test_drain_names_the_servers_that_nobody_has_then(hub: Any, hubbub: Any) -> None:
    says(hub, "DrainMember", pb.DrainMemberResponse(member="b"))
    states(hub, fleet(A, {**B, "state": pb.MEMBER_STATE_DRAINING}, unowned=("tool",)))
    ran = await hubbub("fleet", "drain", "b")
    assert (ran.status, ran.lines[0]["state"]) == (0, "draining")
    assert "nobody has tool" in ran.err


async def test_drain_without_waiting_returns_at_once(hub: Any, hubbub: Any) -> None:
    says(hub, "DrainMember", pb.DrainMemberResponse(member="a"))
    states(hub, fleet({**A, "state": pb.MEMBER_STATE_DRAINING, "servers": ["one"]}))
    ran = await hubbub("fleet", "drain", "--no-wait", json=False)
    assert (ran.status, ran.out) == (0, "a drains\n")


async def test_drain_fails_when_somebody_has_the_member_take_servers_again(hub: Any, hubbub: Any) -> None:
    says(hub, "DrainMember", pb.DrainMemberResponse(member="a"))
    states(hub, fleet({**A, "servers": ["one"]}))
    ran = await hubbub("fleet", "drain", "a", json=False)
    assert (ran.status, ran.out) == (1, "a has 1 server left, and does not drain any more\n")


async def test_a_member_drains_on_after_ctrl_c(hub: Any, hubbub_process: Any) -> None:
    says(hub, "DrainMember", pb.DrainMemberResponse(member="a"))
    states(hub, fleet({**A, "state": pb.MEMBER_STATE_DRAINING, "servers": ["one"]}))
    async with await hubbub_process("fleet", "drain", options=()) as process:
        assert process.stderr
        assert b"a has 1 server left" in await process.stderr.receive()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 1
    assert {name for name, *_ in hub.seen} == {"DrainMember", "GetFleet"}


async def test_resume_and_expel_say_what_they_did(hub: Any, hubbub: Any) -> None:
    says(hub, "ResumeMember", pb.ResumeMemberResponse(member="b"))
    says(hub, "ExpelMember", pb.ExpelMemberResponse(member="b"))
    states(hub, fleet(A, B))
    assert (await hubbub("fleet", "resume", "b", json=False)).out == "b takes servers\n"
    assert (await hubbub("fleet", "resume", "b")).lines[0]["name"] == "b"
    ran = await hubbub("fleet", "expel", "b", "--dead", "--force", json=False)
    assert ran.out == "b is gone; others take its servers\n"
    (asked,) = hub.requests("ExpelMember")
    assert (asked.member, asked.dead, asked.force) == ("b", True, True)


async def test_force_without_dead_is_wrong_usage(hub: Any, hubbub: Any) -> None:
    ran = await hubbub("fleet", "expel", "b", "--force")
    assert (ran.status, hub.seen) == (2, [])


@pytest.mark.parametrize(("sealed", "status"), [(4, 0), (3, 1)])
async def test_rotate_key_counts_and_fails_if_some_are_left(hub: Any, hubbub: Any, sealed: int, status: int) -> None:
    says(hub, "RotateVaultKey", pb.RotateVaultKeyResponse(sealed=sealed, rows=4))
    ran = await hubbub("fleet", "rotate-key")
    assert (ran.status, ran.lines) == (status, [{"sealed": sealed, "rows": 4}])
    said = await hubbub("fleet", "rotate-key", json=False)
    assert said.out == f"{sealed} of 4 secrets are sealed with the first key\n"


@pytest.mark.parametrize(("required", "told"), [(3, True), (4, False)])
async def test_people_see_that_an_upgrade_is_under_way(hub: Any, hubbub: Any, required: int, told: bool) -> None:
    gone = {**A, "name": "c", "state": pb.MEMBER_STATE_GONE}
    states(hub, fleet({**A, "schema": 4}, B, gone, schema=4, required_schema=required))
    ran = await hubbub("fleet", "status", json=False)
    assert ("an upgrade is under way" in ran.err, "fleet finish-upgrade" in ran.err) == (told, told)
    assert ("the new version must be at b, too" in ran.err) == told


async def test_an_upgrade_is_finished_at_a_schema(hub: Any, hubbub: Any) -> None:
    says(hub, "FinishUpgrade", pb.FinishUpgradeResponse(schema=4))
    assert (await hubbub("fleet", "finish-upgrade")).lines == [{"schema": 4}]
    ran = await hubbub("fleet", "finish-upgrade", json=False)
    assert "the upgrade is finished: hubs must know version 4" in ran.out


async def test_a_member_that_is_not_there_is_answered_with_those_that_are(hub: Any, hubbub: Any, refusal: Any) -> None:
    def refuse(_: Any) -> Any:
        raise refusal("NOT_FOUND", "MEMBER_NOT_FOUND", metadata={"member": "berta"})

    hub.replies["DrainMember"] = refuse
    states(hub, fleet(A, {**B, "name": "bertha"}))
    ran = await hubbub("fleet", "drain", "berta", json=False)
    assert ran.status == 1
    assert "did you mean bertha?" in ran.err
    assert "fleet status" in ran.err


async def test_the_library_says_who_has_a_server(hub: Any) -> None:
    states(hub, fleet({**A, "servers": ["one"]}, B, unowned=("two",)))
    async with hubbub_client.connect(data_dir=hub.data_dir) as client:
        it = await client.fleet.status()
    assert (it.owner("one"), it.owner("two")) == ("a", None)
    assert it.find("b") == it.members[1]
    assert it.find("c") is None


@pytest.mark.parametrize(
    ("member", "problem", "words"),
    [
        ({**A, "state": pb.MEMBER_STATE_DRAINING}, "", "a drains"),
        (A, "the disk is full", "its store cannot be written: the disk is full"),
        (A, "", "a may not act"),
    ],
)
async def test_the_health_of_a_member_says_why_it_takes_no_work(
    hub: Any, typed: Any, monkeypatch: pytest.MonkeyPatch, member: Any, problem: str, words: str
) -> None:
    async def unwell(_admin: Admin) -> bool:
        return False

    monkeypatch.setattr(Admin, "well", unwell)
    says(hub, "GetStatus", admin_pb2.GetStatusResponse(store_problem=problem))
    states(hub, fleet(member, B))
    ran = await typed("--data-dir", str(hub.data_dir), "health")
    assert (ran.status, ran.out.startswith("not serving: ")) == (1, True)
    assert words in ran.out
    ran = await typed("--data-dir", str(hub.data_dir), "health", "--live")
    assert (ran.status, ran.out) == (0, "not serving, but it answers\n")
