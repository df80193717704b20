"""Roles, grants and scopes: who may do what, as pure functions."""

from dataclasses import replace

import pytest

from hubbubd.core.access import EVERYTHING, ROLES, Grant, Permission, Principal, Role, Scope, scope, servers_scope
from hubbubd.core.calls.call_states import Call
from hubbubd.core.inbox.request_states import CauseSource, Origin, PendingRequest, RequestKind
from hubbubd.core.tasks import Task, TaskRole


def principal(*grants: Grant) -> Principal:
    return Principal(name="me", grants=grants, credential="test")


def call(server: str, by: str) -> Call:
    common = {"method": "tools/call", "params": b"{}", "detached": False, "timeout_s": 1.0, "max_s": 1.0}
    return Call(id="c", server=server, principal=by, created_at=0.0, **common)


def request(
    server: str, by: str | None, source: CauseSource | None, kind: RequestKind = RequestKind.SAMPLING
) -> PendingRequest:
    return PendingRequest(
        id="r",
        server=server,
        kind=kind,
        origin=Origin.PLAIN,
        request=b"{}",
        created_at=0.0,
        deadline=None,
        principal=by,
        cause_source=source,
    )


def test_grants_add_up_and_none_of_them_reaches_further_than_its_servers() -> None:
    me = principal(Grant(Role.CALLER, ("shop-*",)), Grant(Role.OPERATOR, ("git",)))
    assert me.may(Permission.CALL, "shop-1")
    assert me.may(Permission.OPERATE, "git")
    assert not me.may(Permission.CALL, "git")
    assert not me.may(Permission.OPERATE, "shop-1")
    assert not me.may_everywhere(Permission.BROWSE)


@pytest.mark.parametrize("name", ["shop", "Shop-1", "x-shop-1", "shop_1", ""])
def test_a_pattern_is_for_whole_names_and_case_counts(name: str) -> None:
    assert not principal(Grant(Role.VIEWER, ("shop-*",))).may(Permission.SEE, name)


@pytest.mark.parametrize("pattern", ["**", "?*", "[a-z]*", "shop*"])
def test_a_pattern_that_happens_to_match_all_servers_is_not_the_hub_as_a_whole(pattern: str) -> None:
    assert not principal(Grant(Role.ADMIN, (pattern,))).may_everywhere(Permission.ADMINISTER)


def test_nobody_has_a_permission_without_a_grant() -> None:
    assert not any(principal().servers(permission) for permission in Permission)


def test_all_who_may_see_everything_have_the_same_scope() -> None:
    seeing = [role for role in Role if Permission.SEE in ROLES[role]]
    assert {scope(principal(Grant(role)), Permission.SEE) for role in seeing} == {EVERYTHING}
    assert hash(scope(principal(Grant(Role.ADMIN)), Permission.SEE)) == hash(EVERYTHING)


def test_ones_own_needs_the_wire_and_a_server_that_one_may_still_call() -> None:
    mine = scope(principal(Grant(Role.CALLER, ("shop",))), Permission.SEE)
    assert mine.has_call(call("shop", "me"))
    assert not mine.has_call(call("shop", "you"))
    assert not mine.has_call(call("git", "me"))
    assert mine.has_request(request("shop", "me", CauseSource.WIRE))
    for by, source in (("me", CauseSource.INFERRED), ("me", None), (None, CauseSource.WIRE), ("you", CauseSource.WIRE)):
        assert not mine.has_request(request("shop", by, source))
    task = Task(
        id="t",
        server="shop",
        fingerprint="",
        role=TaskRole.CLIENT,
        method="tools/call",
        created_at=0.0,
        last_updated_at=0.0,
        principal="me",
    )
    assert mine.has_task(task)
    assert not mine.has_task(replace(task, principal=None))


def test_who_may_not_call_has_nothing_of_its_own() -> None:
    watching = scope(principal(Grant(Role.VIEWER, ("shop",))), Permission.ANSWER)
    assert not watching.has_call(call("shop", "me"))


def test_an_empty_name_owns_nothing() -> None:
    assert not Scope(frozenset(), "", frozenset({"*"})).has_request(request("shop", None, CauseSource.WIRE))


def test_the_text_of_a_scope_tells_scopes_apart_and_is_the_same_whatever_the_order() -> None:
    names = [f"server{number}" for number in range(50)]
    assert str(Scope(frozenset(names))) == str(Scope(frozenset(reversed(names))))
    scopes = [EVERYTHING, Scope(frozenset()), Scope(frozenset(), "a", frozenset("b")), Scope(frozenset("a"), "b")]
    assert len({str(each) for each in scopes}) == len(scopes)


def test_the_servers_of_a_permission_are_no_ones_own() -> None:
    assert servers_scope(principal(Grant(Role.CALLER, ("shop",))), Permission.BROWSE) == Scope(frozenset({"shop"}))
    assert servers_scope(principal(Grant(Role.CALLER)), Permission.BROWSE) == EVERYTHING


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("by", ["me", "you"])
@pytest.mark.parametrize("kind", list(RequestKind))
def test_to_answer_an_approval_takes_approve_and_nothing_else_gives_the_right(
    role: Role, by: str, kind: RequestKind
) -> None:
    asked = request("shop", by, CauseSource.WIRE, kind)
    for grant in (Grant(role), Grant(role, ("shop",))):
        answers = scope(principal(grant), Permission.ANSWER).has_request(asked)
        if kind is RequestKind.APPROVAL:
            assert answers == (Permission.APPROVE in ROLES[role])
        else:
            assert answers == (Permission.ANSWER in ROLES[role] or (by == "me" and Permission.CALL in ROLES[role]))


@pytest.mark.parametrize("role", list(Role))
def test_an_approval_is_seen_as_every_other_pending_request(role: Role) -> None:
    seen = scope(principal(Grant(role, ("shop",))), Permission.SEE)
    for by, source in (("me", CauseSource.WIRE), ("you", CauseSource.WIRE), ("me", CauseSource.INFERRED)):
        approval, form = (request("shop", by, source, kind) for kind in (RequestKind.APPROVAL, RequestKind.SAMPLING))
        assert seen.has_request(approval) == seen.has_request(form)


def test_the_right_to_approve_is_for_the_servers_of_its_grant() -> None:
    mixed = scope(principal(Grant(Role.RESPONDER), Grant(Role.APPROVER, ("shop-*",))), Permission.ANSWER)
    assert mixed.has_request(request("git", None, None))
    assert not mixed.has_request(request("git", None, None, RequestKind.APPROVAL))
    assert mixed.has_request(request("shop-1", None, None, RequestKind.APPROVAL))


def test_who_answers_and_approves_everything_has_the_scope_of_all_who_see_everything() -> None:
    both = principal(Grant(Role.RESPONDER), Grant(Role.APPROVER))
    assert scope(both, Permission.ANSWER) == scope(principal(Grant(Role.ADMIN)), Permission.ANSWER) == EVERYTHING
    answering = scope(principal(Grant(Role.RESPONDER)), Permission.ANSWER)
    assert answering not in (EVERYTHING, scope(principal(Grant(Role.RESPONDER)), Permission.SEE))
    assert str(answering) != str(EVERYTHING)


def test_servers_of_several_permissions_are_those_of_any_of_them() -> None:
    mixed = principal(Grant(Role.CALLER, ("a",)), Grant(Role.APPROVER, ("b",)))
    assert servers_scope(mixed, Permission.CALL, Permission.APPROVE) == Scope(frozenset({"a", "b"}))
