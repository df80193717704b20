"""What may have happened between the question and the answer: whatever it is, a person reads it on a page."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubbubd.core.audit import AuditFilter
from hubbubd.errors import Unavailable
from hubbubd.rpc.login import consents
from hubbubd.rpc.login.programs import Programs
from hubbubd.runtime.oversight import logins

from .log_in import OWNER, Browser, Program, entered, made, program, query_of
from .mcp_host import Stage, stage

__all__ = ["entered", "made", "program"]  # the fixtures


@pytest.mark.parametrize("path", ["/oauth/enter", "/oauth/authorize?client_id=x"])
async def test_where_the_log_in_is_off_a_person_is_told_so_on_a_page(tmp_path: Path, path: str) -> None:
    async with stage(tmp_path, mcp_login=False) as made:
        shown = await made.http.get(f"{made.base}{path}")
        assert shown.status_code == 404
        assert "This hub&#x27;s own log-in is off" in shown.text


async def test_a_person_whose_rights_have_gone_meanwhile_lets_nobody_in(made: Stage, program: Program) -> None:
    _, secret = await made.hub.tokens.create("eve", OWNER.grants, by="test", ttl_s=None, may_name_others=False)
    eve = await made.hub.tokens.principal(secret)
    assert eve is not None
    entered = await Browser(made).enter(eve)
    page = await entered.open(program.address())
    made.gate.end_credential(eve.credential)
    refused = await entered.decide(page)
    assert refused.status_code == 403
    assert "You may not let programs in any more" in refused.text
    await made.hub.tokens.revoke("eve")
    ended = await entered.decide(page)
    assert ended.status_code == 403
    assert "does not know any more who you are" in ended.text
    assert not [token for token in made.hub.tokens.all() if token.login]


async def test_without_tls_a_browser_is_known_for_one_decision(made: Stage, program: Program, entered: Browser) -> None:
    page = await entered.open(program.address())
    first, again = await entered.decide(page), await entered.decide(page)  # a double click
    assert (first.status_code, again.status_code) == (303, 303)
    asked = await entered.open(program.address())
    assert asked.headers["location"].startswith("/oauth/enter?next=")


async def test_twenty_presses_of_one_button_give_one_code(made: Stage, program: Program, entered: Browser) -> None:
    page = await entered.open(program.address())
    answers = await asyncio.gather(*(entered.decide(page, days=days) for days in ("30", "90") * 10))
    assert {answer.status_code for answer in answers} == {303}
    (back,) = {answer.headers["location"] for answer in answers}
    assert (await program.exchange(query_of(back)["code"])).status_code == 200
    entries = made.hub.audit.select(AuditFilter(principal="ada", action="AllowLogin"))
    assert Counter({entry.outcome: max(1, entry.count) for entry in entries}) == {"OK": 1, "LOGIN_DECIDED": 19}


async def test_after_refuse_the_same_page_lets_nobody_in(made: Stage, program: Program, entered: Browser) -> None:
    page = await entered.open(program.address())
    first, again = await entered.decide(page, "deny"), await entered.decide(page, "deny")
    assert first.headers["location"] == again.headers["location"]
    late = await entered.decide(page)
    assert (late.status_code, "location" in late.headers) == (400, False)
    assert "You have refused already" in late.text
    assert [entry.outcome for entry in made.hub.audit.select(AuditFilter(action="AllowLogin"))] == ["LOGIN_DECIDED"]


async def test_after_allow_the_same_page_says_that_refuse_comes_too_late(program: Program, entered: Browser) -> None:
    page = await entered.open(program.address())
    code = query_of((await entered.decide(page)).headers["location"])["code"]
    late = await entered.decide(page, "deny")
    assert (late.status_code, "hubbub tokens revoke NAME" in late.text) == (400, True)
    assert (await program.exchange(code)).status_code == 200


async def test_who_decides_too_often_reads_it_on_a_page(
    program: Program, entered: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "DECISIONS_PER_PERSON", 0)
    page = await entered.open(program.address())
    for decision in ("allow", "deny"):
        refused = await entered.decide(page, decision)
        assert (refused.status_code, "That was too often" in refused.text) == (429, True)


async def test_a_question_that_was_open_for_too_long_is_not_answered(
    made: Stage, program: Program, entered: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = await entered.open(program.address())
    monkeypatch.setattr(consents, "CONSENT_S", -1.0)
    late = await entered.decide(page)
    assert late.status_code == 400
    assert "This request has expired" in late.text


async def test_where_the_store_is_away_a_person_reads_a_page(
    made: Stage, program: Program, entered: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> str:
        raise Unavailable("nothing was changed", reason="STORE_UNAVAILABLE")

    page = await entered.open(program.address())
    monkeypatch.setattr(made.hub.logins, "allow", away)
    busy = await entered.decide(page)
    assert busy.status_code == 503
    assert "The hub cannot do this now" in busy.text


@pytest.mark.parametrize("changes", [{"redirect_uris": ("https://evil.example/",)}, {"name": "Other"}])
async def test_a_program_that_has_changed_since_the_question_is_not_let_in(
    program: Program, entered: Browser, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    page = await entered.open(program.address())
    find = Programs.find

    async def find_changed(self: Programs, client_id: str) -> Any:
        return replace(await find(self, client_id), **changes)

    monkeypatch.setattr(Programs, "find", find_changed)
    refused = await entered.decide(page)
    assert refused.status_code == 400
    assert "The request has changed" in refused.text


async def test_an_endpoint_that_was_removed_meanwhile_is_not_given(made: Stage, entered: Browser) -> None:
    program = await Program(made).register()
    page = await entered.open(program.address(resource=f"{made.base}/mcp/p/small"))
    await made.reload(mcp_profiles={})
    gone = await entered.decide(page)
    assert gone.status_code == 400
    assert "This address is not there any more" in gone.text
