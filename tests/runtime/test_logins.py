"""Log-ins of hosts in time, over restarts, and at the members of a fleet."""

import base64
import hashlib
import secrets
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from hubbubd.core.access import Grant, Role
from hubbubd.core.logins.issued import ACCESS_S, CODE_S, GRACE_S, USED_CODE_RETENTION_S
from hubbubd.core.logins.refusals import LoginRefusal
from hubbubd.errors import ResourceExhausted, Unauthenticated, Unavailable
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.oversight import AuthorizationCode, DecidedBefore, IssuedTokens
from hubbubd.runtime.oversight.logins import CODES_PER_PERSON, DECIDED_S, DECISIONS_PER_PERSON, LOGINS_PER_PERSON

from .conftest import World, settle
from .fleet import members

VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
DAY_S = 86_400.0
CONSENT_S = 600.0


def consent(**known: Any) -> AuthorizationCode:
    """A person's consent."""
    usual: dict[str, Any] = {
        "id": "",
        "client_id": "client",
        "client_name": "Robot",
        "redirect_uri": "http://127.0.0.1/cb",
        "redirect_named": True,
        "redirect_host": "127.0.0.1",
        "challenge": CHALLENGE,
        "endpoint": "/mcp",
        "servers": ("*",),
        "granted_by": "ada",
        "granted_with": "local",
        "ends_at": None,
        "lasts_s": 30 * DAY_S,
        "created_at": 0.0,
    }
    return AuthorizationCode(**(usual | known))


async def allow(hub: Hub, consent: AuthorizationCode, page: str = "") -> str:
    """The code that a consent gives, on a page of its own or on a given one."""
    return await hub.logins.allow(consent, page or secrets.token_hex(8), hub.clock.now() + CONSENT_S)


async def exchange(hub: Hub, code: str) -> IssuedTokens:
    """What a host gets for a code."""
    return await hub.logins.exchange(code, "client", "http://127.0.0.1/cb", VERIFIER)


async def log_in(hub: Hub, **known: Any) -> IssuedTokens:
    """What a host gets after a consent."""
    return await exchange(hub, await allow(hub, consent(**known)))


async def is_good(hub: Hub, access: str) -> bool:
    """Whether an access token lets in."""
    try:
        return await hub.tokens.principal(access) is not None
    except Unauthenticated:
        return False


async def test_a_code_is_good_for_a_minute(world: World) -> None:
    async with world.hub() as hub:
        early, late = await allow(hub, consent()), await allow(hub, consent())
        await anyio.sleep(CODE_S - 1)
        assert await is_good(hub, (await exchange(hub, early)).access)
        await anyio.sleep(1)
        with pytest.raises(LoginRefusal, match="good for 60 s"):
            await exchange(hub, late)


async def test_a_code_is_remembered_for_its_second_use_and_then_forgotten(world: World) -> None:
    async with world.hub() as hub:
        code = await allow(hub, consent())
        given = await exchange(hub, code)
        await anyio.sleep(USED_CODE_RETENTION_S - 1)
        with pytest.raises(LoginRefusal, match="used before"):
            await exchange(hub, code)
        assert not await is_good(hub, given.access)
        await anyio.sleep(1)
        await allow(hub, consent())
        with pytest.raises(LoginRefusal, match="not known"):
            await exchange(hub, code)


async def test_one_person_has_so_many_codes_that_wait(world: World) -> None:
    async with world.hub() as hub:
        codes = [await allow(hub, consent()) for _ in range(CODES_PER_PERSON + 1)]
        await allow(hub, consent(granted_by="bob"))
        with pytest.raises(LoginRefusal):
            await exchange(hub, codes[0])
        assert await exchange(hub, codes[1])


async def decide(hub: Hub, decision: str) -> str:
    """What comes of a decision on one and the same page."""
    try:
        if decision == "allow":
            return await allow(hub, consent(), "page")
        await hub.logins.refuse("ada", "page", hub.clock.now() + CONSENT_S)
    except DecidedBefore as exc:
        return f"before: {exc.is_allowed}"
    return "refused"


@pytest.mark.parametrize(("first", "is_allowed"), [("allow", True), ("refuse", False)])
async def test_the_first_decision_on_a_page_counts_also_after_a_restart(
    world: World, first: str, is_allowed: bool
) -> None:
    async with world.hub() as hub:
        made = await decide(hub, first)
    async with world.hub() as hub:
        for again in ("allow", "refuse", "allow"):
            assert await decide(hub, again) == f"before: {is_allowed}"
        assert (made == await hub.logins.make_code("page")) == is_allowed
        await anyio.sleep(CONSENT_S)  # as long as the page may be answered
        await hub.logins.refuse("ada", "another page", hub.clock.now() + CONSENT_S)
        assert await decide(hub, "allow") == f"before: {is_allowed}"


async def test_of_decisions_at_two_members_at_once_one_counts() -> None:
    async with members() as fleet:
        a, b = await fleet.start("a"), await fleet.start("b")
        outcomes: list[str] = []

        async def try_it(hub: Hub, decision: str) -> None:
            outcomes.append(await decide(hub, decision))

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(try_it, a.hub, "allow")
                tasks.start_soon(try_it, b.hub, "refuse")
        (made,) = [each for each in outcomes if not each.startswith("before")]
        assert outcomes.count(f"before: {made != 'refused'}") == 19


async def test_one_person_decides_on_so_many_pages_within_an_hour(world: World) -> None:
    async with world.hub() as hub:
        for _ in range(DECISIONS_PER_PERSON):
            await allow(hub, consent())
        with pytest.raises(ResourceExhausted, match="ada has decided on 200"):
            await allow(hub, consent())
        assert await allow(hub, consent(granted_by="bob"))
        await anyio.sleep(CONSENT_S + DECIDED_S + 1)
        assert await allow(hub, consent())


async def test_a_log_in_takes_the_name_of_no_other_token_also_of_an_expired_one(world: World) -> None:
    async with world.hub() as hub:
        await hub.tokens.create("robot", (Grant(Role.VIEWER),), by="ada", ttl_s=1.0, may_name_others=False)
        await anyio.sleep(2.0)
        given = await log_in(hub)
        assert given.token.name == "robot-2"
        await hub.tokens.revoke(given.token.name)
        assert not await is_good(hub, given.access)


async def test_a_refresh_token_is_good_for_its_own_program_alone(world: World) -> None:
    async with world.hub() as hub:
        given = await log_in(hub)
        with pytest.raises(LoginRefusal, match="not known here"):
            await hub.logins.refresh(given.refresh, "another")
        assert await hub.logins.refresh(given.refresh, "client")  # which it has not ended


async def test_a_host_is_out_already_while_the_revocation_of_its_persons_token_is_written(world: World) -> None:
    async with world.hub() as hub:
        person, _ = await hub.tokens.create("eve", (Grant(Role.ADMIN),), by="x", ttl_s=None, may_name_others=False)
        given = await log_in(hub, granted_by="eve", granted_with=person.credential)
        assert await is_good(hub, given.access)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hub.tokens.revoke, "eve")
            await anyio.lowlevel.checkpoint()
            assert hub.tokens.has_name("eve")  # the commit is under way
            assert not await is_good(hub, given.access)


async def test_an_access_token_is_good_for_an_hour_and_what_it_began_for_the_whole_log_in(world: World) -> None:
    async with world.hub() as hub:
        given = await log_in(hub)
        principal = await hub.tokens.principal(given.access)
        assert principal.expires_at == given.token.expires_at == given.token.created_at + 30 * DAY_S
        await anyio.sleep(ACCESS_S - 1)
        assert await is_good(hub, given.access)
        new = await hub.logins.refresh(given.refresh, "client")
        assert await is_good(hub, given.access)
        await anyio.sleep(1)
        assert (await is_good(hub, given.access), await is_good(hub, new.access)) == (False, True)


async def test_a_log_in_ends_after_its_days_however_often_it_is_refreshed(world: World) -> None:
    async with world.hub() as hub:
        given = await log_in(hub, lasts_s=DAY_S)
        for _ in range(23):
            await anyio.sleep(ACCESS_S)
            given = await hub.logins.refresh(given.refresh, "client")
        await anyio.sleep(ACCESS_S / 2)
        given = await hub.logins.refresh(given.refresh, "client")
        assert given.expires_in_s == pytest.approx(ACCESS_S / 2, abs=60)
        await anyio.sleep(ACCESS_S)
        assert not await is_good(hub, given.access)
        with pytest.raises(LoginRefusal, match="over"):
            await hub.logins.refresh(given.refresh, "client")
        await log_in(hub)
        assert [token.name for token in hub.tokens.all()] == ["robot"]


async def test_a_log_in_lasts_no_longer_than_the_persons_own_credential(world: World) -> None:
    async with world.hub() as hub:
        given = await log_in(hub, ends_at=hub.clock.now() + 600)
        assert given.expires_in_s == pytest.approx(600, abs=5)
        await anyio.sleep(601)
        assert not await is_good(hub, given.access)


async def test_a_lost_refresh_may_be_repeated_for_a_minute(world: World) -> None:
    async with world.hub() as hub:
        given = await log_in(hub)
        lost = await hub.logins.refresh(given.refresh, "client")
        await anyio.sleep(GRACE_S - 1)
        again = await hub.logins.refresh(given.refresh, "client")
        assert not await is_good(hub, lost.access)
        await anyio.sleep(1)
        with pytest.raises(LoginRefusal, match="used before"):
            await hub.logins.refresh(given.refresh, "client")
        assert not await is_good(hub, again.access)


async def test_so_many_log_ins_of_one_person_push_out_the_one_that_was_unused_longest(world: World) -> None:
    async with world.hub() as hub:
        first, second = await log_in(hub), await log_in(hub)
        other = await log_in(hub, granted_by="bob")
        await anyio.sleep(1)
        first = await hub.logins.refresh(first.refresh, "client")
        for _ in range(LOGINS_PER_PERSON - 1):
            await log_in(hub)
        assert await is_good(hub, first.access)
        assert await is_good(hub, other.access)
        assert not await is_good(hub, second.access)


async def test_no_log_in_is_made_beyond_the_most_tokens(world: World) -> None:
    world.settings |= {"max_tokens": 1}
    async with world.hub() as hub:
        await hub.tokens.create("t", [Grant(Role.VIEWER)], by="test", ttl_s=None, may_name_others=False)
        code = await allow(hub, consent())
        with pytest.raises(LoginRefusal, match="max_tokens"):
            await exchange(hub, code)
        await hub.tokens.revoke("t")
        assert await exchange(hub, code)


async def test_every_step_survives_a_restart(world: World) -> None:
    async with world.hub() as hub:
        key = await hub.logins.statement_key()
        code = await allow(hub, consent())
    async with world.hub() as hub:
        assert await hub.logins.statement_key() == key
        given = await exchange(hub, code)
    async with world.hub() as hub:
        assert await is_good(hub, given.access)
        new = await hub.logins.refresh(given.refresh, "client")
        assert await is_good(hub, new.access)
    async with world.hub() as hub:
        with pytest.raises(LoginRefusal):
            await hub.logins.refresh(given.refresh, "client")
        assert not await is_good(hub, new.access)


async def test_nothing_is_given_that_is_not_durable(world: World) -> None:
    async with world.hub() as hub:
        code = await allow(hub, consent())
        given = await log_in(hub)
        for step in (exchange(hub, code), hub.logins.refresh(given.refresh, "client"), allow(hub, consent())):
            world.store.failures = 1
            with pytest.raises(Unavailable):
                await step
        assert await is_good(hub, given.access)
        assert await exchange(hub, code)
        assert await hub.logins.refresh(given.refresh, "client")


async def test_another_member_may_serve_each_step() -> None:
    async with members() as fleet:
        a, b = await fleet.start("a"), await fleet.start("b")
        for member in (a, b):
            member.store.held = True  # what others commit is heard of when it is asked for
        assert await a.hub.logins.statement_key() == await b.hub.logins.statement_key()
        code = await allow(a.hub, consent())
        given = await exchange(b.hub, code)
        assert await is_good(a.hub, given.access)
        new = await a.hub.logins.refresh(given.refresh, "client")
        assert await is_good(b.hub, new.access)
        assert await b.hub.logins.refresh(new.refresh, "client")
        assert await a.hub.logins.revoke(given.refresh, "client") is not None
        await b.hub.catch_up()
        assert not await is_good(b.hub, new.access)


async def test_of_exchanges_at_two_members_one_is_given_tokens_which_end() -> None:
    async with members() as fleet:
        a, b = await fleet.start("a"), await fleet.start("b")
        code = await allow(a.hub, consent())
        given: list[IssuedTokens] = []

        async def try_it(hub: Hub) -> None:
            with suppress(LoginRefusal):
                given.append(await exchange(hub, code))

        async with anyio.create_task_group() as tasks:
            for _ in range(25):
                tasks.start_soon(try_it, a.hub)
                tasks.start_soon(try_it, b.hub)
        await settle()
        assert len(given) == 1
        assert a.hub.tokens.all() == b.hub.tokens.all() == []
