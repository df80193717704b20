"""Who sits at a browser: codes are used once, and visits end in time."""

import anyio
import pytest

from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.logins.visits import CODE_S, ENDED_CODE_RETENTION_S, MAX_CODES, PLAIN_VISIT_S, VISIT_S
from hubbubd.errors import FailedPrecondition, ResourceExhausted, Unavailable
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.oversight import CodeRefused, visitors

from ..raising import raising
from .conftest import World, settle
from .fleet import count_lookups, members

GRANTS = (Grant(Role.CALLER),)
ADA = Principal(name="ada", grants=GRANTS, credential="local")


async def asked(hub: Hub, principal: Principal = ADA) -> str:
    """A code for somebody, from a hub at which hosts can log in."""
    hub.visitors.address = "http://127.0.0.1:1"
    code, _ = await hub.visitors.create_code(principal)
    return code


async def refused(hub: Hub, code: str) -> str:
    """Why a code lets nobody in."""
    with pytest.raises(CodeRefused) as caught:
        await hub.visitors.use_code(code, secure=True)
    return caught.value.reason


async def token_of(hub: Hub, name: str, ttl_s: float | None = None) -> Principal:
    """The principal of a new token."""
    _, secret = await hub.tokens.create(name, GRANTS, by="test", ttl_s=ttl_s, may_name_others=False)
    found = await hub.tokens.principal(secret)
    assert found is not None
    return found


async def test_a_code_says_once_who_somebody_is(world: World) -> None:
    async with world.hub() as hub:
        code = await asked(hub)
        cookie, visitor = await hub.visitors.use_code(code, secure=True)
        assert (visitor.name, visitor.credential, visitor.principal.grants) == ("ada", "local", GRANTS)
        found = await hub.visitors.find_visitor(cookie)
        assert found == visitor
        assert await refused(hub, code) == "LOGIN_CODE_USED"
        assert await refused(hub, "ABCD-EFGH") == "LOGIN_CODE_UNKNOWN"


async def test_of_fifty_who_type_one_code_at_once_one_is_let_in(world: World) -> None:
    async with world.hub() as hub:
        code = await asked(hub)
        outcomes: list[str] = []

        async def type_it() -> None:
            try:
                await hub.visitors.use_code(code, secure=True)
            except CodeRefused as exc:
                outcomes.append(exc.reason)
            else:
                outcomes.append("in")

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(type_it)
        assert sorted(outcomes) == ["LOGIN_CODE_USED"] * 49 + ["in"]


async def test_a_code_expires_and_is_forgotten_an_hour_later(world: World) -> None:
    async with world.hub() as hub:
        code = await asked(hub)
        await anyio.sleep(CODE_S)
        assert await refused(hub, code) == "LOGIN_CODE_EXPIRED"
        await anyio.sleep(ENDED_CODE_RETENTION_S)
        await asked(hub)
        assert await refused(hub, code) == "LOGIN_CODE_UNKNOWN"


async def test_a_new_code_ends_the_oldest_of_the_same_person_and_no_others(world: World) -> None:
    async with world.hub() as hub:
        of_eve = await asked(hub, Principal(name="eve", grants=GRANTS, credential="local"))
        codes: list[str] = []
        for _ in range(MAX_CODES + 1):
            codes.append(await asked(hub))
            await anyio.sleep(1)
        assert await refused(hub, codes[0]) == "LOGIN_CODE_UNKNOWN"
        for code in (of_eve, *codes[1:]):
            await hub.visitors.use_code(code, secure=True)


async def test_the_codes_of_a_hub_have_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "MAX_ALL_CODES", 3)
    async with world.hub() as hub:
        people = [Principal(name=str(number), grants=GRANTS, credential="local") for number in range(4)]
        for person in people[:3]:
            await asked(hub, person)
        with raising(ResourceExhausted, "TOO_MANY_LOGIN_CODES"):
            await asked(hub, people[3])
        await anyio.sleep(CODE_S + ENDED_CODE_RETENTION_S)
        await asked(hub, people[3])


async def test_the_oldest_visit_makes_room(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "MAX_VISITS", 2)
    async with world.hub() as hub:
        cookies: list[str] = []
        for _ in range(3):
            cookies.append((await hub.visitors.use_code(await asked(hub), secure=True))[0])
            await anyio.sleep(1)
        assert [await hub.visitors.find_visitor(cookie) is not None for cookie in cookies] == [False, True, True]


async def test_where_hosts_cannot_log_in_there_is_no_code(world: World) -> None:
    async with world.hub() as hub:
        with raising(FailedPrecondition, "LOGIN_OFF") as off:
            await hub.visitors.create_code(ADA)
        assert "hubbub tokens create" in off.value.message


async def test_codes_and_visits_end_with_the_credential_that_asked(world: World) -> None:
    async with world.hub() as hub:
        eve = await token_of(hub, "eve")
        unused, used = await asked(hub, eve), await asked(hub, eve)
        cookie, _ = await hub.visitors.use_code(used, secure=True)
        world.store.delay_s = 1  # what follows the revocation is on its way
        await hub.tokens.revoke("eve")
        assert await hub.visitors.find_visitor(cookie) is None
        assert await refused(hub, unused) == "LOGIN_CODE_ENDED"
        await settle(5)
        assert await refused(hub, unused) == "LOGIN_CODE_ENDED"
        assert await hub.visitors.find_visitor(cookie) is None


async def test_they_end_when_that_credential_expires(world: World) -> None:
    async with world.hub() as hub:
        eve = await token_of(hub, "eve", ttl_s=60)
        unused, used = await asked(hub, eve), await asked(hub, eve)
        cookie, visitor = await hub.visitors.use_code(used, secure=True)
        assert visitor.until == eve.expires_at
        await anyio.sleep(60)
        assert await hub.visitors.find_visitor(cookie) is None
        assert await refused(hub, unused) == "LOGIN_CODE_ENDED"


@pytest.mark.parametrize(("secure", "lasts_s"), [(True, VISIT_S), (False, PLAIN_VISIT_S)])
async def test_a_visit_lasts_for_its_time(world: World, secure: bool, lasts_s: float) -> None:
    async with world.hub() as hub:
        cookie, _ = await hub.visitors.use_code(await asked(hub), secure=secure)
        await anyio.sleep(lasts_s - 1)
        assert await hub.visitors.find_visitor(cookie) is not None
        await anyio.sleep(1)
        assert await hub.visitors.find_visitor(cookie) is None


async def test_a_visit_that_ends_with_a_decision_is_good_for_repeating_that_one(world: World) -> None:
    async with world.hub() as hub:
        cookie, _ = await hub.visitors.use_code(await asked(hub), secure=False)
        assert await hub.visitors.find_visitor(cookie, "this") is not None
        await hub.visitors.end_by_decision(cookie, "this")
        await hub.visitors.end_by_decision(cookie, "that")  # too late
        assert await hub.visitors.find_visitor(cookie) is None
        assert await hub.visitors.find_visitor(cookie, "that") is None
        assert await hub.visitors.find_visitor(cookie, "this") is not None


async def test_codes_and_visits_outlive_the_process(world: World) -> None:
    async with world.hub() as hub:
        code, used = await asked(hub), await asked(hub)
        cookie, visitor = await hub.visitors.use_code(used, secure=True)
    async with world.hub() as hub:
        assert await hub.visitors.find_visitor(cookie) == visitor
        assert await refused(hub, used) == "LOGIN_CODE_USED"
        await hub.visitors.use_code(code, secure=True)


async def test_a_credential_that_was_revoked_just_before_the_end_lets_nobody_in_after_it(world: World) -> None:
    async with world.hub() as hub:
        eve = await token_of(hub, "eve")
        code, used = await asked(hub, eve), await asked(hub, eve)
        cookie, _ = await hub.visitors.use_code(used, secure=True)
        await hub.tokens.revoke("eve")
    async with world.hub() as hub:
        assert await hub.visitors.find_visitor(cookie) is None
        assert await refused(hub, code) == "LOGIN_CODE_ENDED"


async def test_a_code_that_could_not_be_used_up_lets_nobody_in_and_stays_good(world: World) -> None:
    async with world.hub() as hub:
        code = await asked(hub)
        world.store.failures = 1
        with pytest.raises(Unavailable):
            await hub.visitors.use_code(code, secure=True)
        await hub.visitors.use_code(code, secure=True)


@pytest.mark.parametrize("cookie", ["", "x", "x" * 43, "\0" * 43, "x" * 100_000])
async def test_made_up_cookies_are_nobodys(world: World, cookie: str) -> None:
    async with world.hub() as hub:
        assert await hub.visitors.find_visitor(cookie) is None


async def test_every_step_may_be_served_by_another_member() -> None:
    async with members() as fleet:
        a, b = await fleet.start("a"), await fleet.start("b")
        for member in (a, b):
            member.store.held = True  # what others commit is heard of when it is asked for
        code = await asked(a.hub)
        cookie, visitor = await b.hub.visitors.use_code(code, secure=True)
        assert await a.hub.visitors.find_visitor(cookie) == visitor
        assert await refused(a.hub, code) == "LOGIN_CODE_USED"


async def test_for_cookies_that_nobody_knows_a_member_asks_the_database_a_few_times_a_second_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = count_lookups(monkeypatch)
    async with members() as fleet:
        hub = (await fleet.start("a")).hub
        asked.clear()
        for _ in range(200):
            assert await hub.visitors.find_visitor("x" * 43) is None
        assert 1 <= len(asked) <= visitors.LOOKUPS_BURST + visitors.LOOKUPS_PER_S
