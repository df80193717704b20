"""What a member may have, what is its alone, and when it may act."""

import anyio
import pytest

from hubbubd.core.filters import CallFilter, CatalogFilter
from hubbubd.core.servers.catalog import CatalogKind
from hubbubd.members import ClockReading
from hubbubd.runtime.ownership import UPKEEP, SoleOwnership

from .conftest import World, server, settle, spec, until
from .fleet import TTL_S, Members, Place
from .peer import Outcome, Sent
from .test_fleet import another, live_links, of, owner
from .test_fleet_moves import remote


async def test_a_server_with_secrets_is_taken_over_by_a_member_that_has_never_seen_them(fleet: Members) -> None:
    await of(fleet, "a", "b", servers=())
    url = "https://example.org/mcp?key=geheim"
    config = server("one", command=None, url=url, headers={"X-Key": "geheim"})
    await fleet.running["a"].hub.servers.add(config)
    await until(lambda: live_links(fleet) == 1)
    for _ in range(2):  # the second one has started since
        dead = owner(fleet)
        dead.kill()
        await until(lambda: fleet.owners("one") and live_links(fleet) == 1)
        assert owner(fleet).hub.servers.get("one").config == config
        await fleet.start(dead.name)
        await settle(10)


async def test_a_server_is_taken_over_only_where_its_host_may_be_reached(fleet: Members) -> None:
    await of(fleet, "a", "b", servers=())
    await fleet.running["a"].hub.servers.add(remote())
    await until(lambda: live_links(fleet) == 1)
    dead = owner(fleet)
    left = another(fleet, dead)
    settings = left.hub.configuration.settings.model_copy(update={"deny_hosts": ("example.org",)})
    await left.hub.servers.adopt({}, settings)
    dead.kill()
    await settle(60)
    assert fleet.owners("one") == []
    await left.hub.servers.adopt({}, left.hub.configuration.settings)
    await until(lambda: left.fleet.owns("one") and live_links(fleet) == 1)


async def test_a_member_stops_to_act_well_before_others_may_act_however_slow_its_beats_are(
    fleet: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = Place.renew_lease

    async def slowly(place: Place, position: int, for_s: float) -> ClockReading:
        reading = await at_once(place, position, for_s)
        await anyio.sleep(1)  # the answer is on its way
        return reading

    monkeypatch.setattr(Place, "renew_lease", slowly)
    one = await fleet.start("a")
    await settle(20)
    one.store.sever(cut=True)
    await until(lambda: not one.fleet.may_act())
    left_s = fleet.database.rows["a"].expires_at - anyio.current_time()
    assert left_s >= TTL_S / 4 - 0.1


class WithoutUpkeep(SoleOwnership):
    """All servers are this hub's own; the upkeep is another's."""

    def owns(self, server: str) -> bool:
        return server != UPKEEP


@pytest.mark.parametrize(("ownership", "kept"), [(WithoutUpkeep(), 12), (SoleOwnership(), 5)])
async def test_only_the_member_that_has_the_upkeep_deletes(world: World, ownership: SoleOwnership, kept: int) -> None:
    world.ownership, world.settings = ownership, {"call_history_count": 5}
    async with world.hub(server()) as hub:
        for _ in range(12):
            await hub.calls.call(spec(), "me")
        await settle(5)  # after what is too much
        assert len(hub.calls.select(CallFilter())) == kept
        await settle(7200)  # and in its rounds
        assert len(hub.calls.select(CallFilter())) == kept


async def test_what_another_member_has_fetched_of_a_catalog_is_told(fleet: Members) -> None:
    peer, told = fleet.peers["one"], list[str]()

    async def listing(_sent: Sent) -> Outcome:
        return {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}

    peer.capabilities, peer.listing = {"tools": {}}, listing
    a, b = await fleet.start("a"), await fleet.start("b")
    for each in (a, b):

        def tell(server: str, _kind: CatalogKind, _announced: bool, name: str = each.name) -> None:
            told.append(f"{name}: {server}")

        each.hub.catalog.listen(tell)
    await a.hub.servers.add(remote())
    await until(lambda: {"a: one", "b: one"} <= set(told))
    for each in (a, b):
        assert [found.count for found in each.hub.catalog.select(CatalogFilter(server="one"))] == [1]
        assert each.hub.catalog.servers() == ["one"]
