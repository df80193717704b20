"""Skills of servers (SEP-2640) at a profile and at a server's own endpoint."""

import json
from typing import Any

import pytest

from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.filters import CatalogFilter
from hubbubd.core.servers.catalog import CatalogKind, Freshness, list_id
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.downstream import HostRequest, McpEndpoint, McpHost, ProfileView, ServerView
from hubbubd.downstream import lists as paged_lists
from hubbubd.errors import PeerError
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era

from ..runtime.conftest import World, server, settle, until
from ..runtime.peer import Outcome, Peer, Sent
from .conftest import ADA, NEW, OLD, Refused, handles, outcome

SKILLS = "io.modelcontextprotocol/skills"
OF_TWO = Principal(name="bob", grants=(Grant(Role.CALLER, ("two",)),), credential="bob")
REVISIONS = ("2024-11-05", "2025-06-18", OLD, NEW)


def skill(path: str, *files: str, name: str = "", **more: Any) -> dict[str, Any]:
    """The entry of a skill, with made-up digests."""
    root = path if "://" in path else f"skill://{path}"
    uris = [f"{root}/SKILL.md", *(f"{root}/{each}" for each in files)]
    return {
        "uri": uris[0],
        "frontmatter": {
            "name": name or root.split("/")[-1],
            "description": "about",
            "x": {"uri": "skill://as/written"},
        },
        "resources": [{"uri": each, "digest": "sha256:no", "size": -1} for each in uris],
        **more,
    }


def serves(peer: Peer, *skills: Any, directories: bool = False, **capabilities: Any) -> None:
    """Have a server list these skills."""
    extension = {"directoryRead": True} if directories else {}
    peer.capabilities = {"resources": {"listChanged": True}, "extensions": {SKILLS: extension}, **capabilities}

    async def listing(sent: Sent) -> Outcome:
        member = {"resources/list": "resources", "skills/list": "skills"}.get(sent.method)
        if member is None:
            raise PeerError(-32601, "Method not found")
        return {member: list(skills) if member == "skills" else []}

    peer.listing = listing


class Shown:
    """A profile's endpoint of a hub, and what hosts of any revision ask of it."""

    def __init__(self, hub: Hub, own: str = "", **settings: Any) -> None:
        """`own` names the server whose own endpoint it is instead."""
        kept = ProfileSettings(**settings)
        view = ServerView(hub, own) if own else ProfileView(hub, "p", lambda: kept)
        self.endpoint = McpEndpoint(hub, view, handles(hub))

    async def ask(self, method: str, revision: str = NEW, principal: Principal = ADA, **params: Any) -> Any:
        """The result of a request. Raises Refused."""
        host = McpHost(principal=principal, revision=revision)
        request = HostRequest(id=1, method=method, params=params, host=host, send=lambda _: None)
        return outcome(await self.endpoint.serve(request))

    async def skills(self, **options: Any) -> list[str]:
        """The URIs of all skills, of all pages."""
        found: list[str] = []
        cursor: dict[str, Any] = {}
        while True:
            page = await self.ask("skills/list", **options, **cursor)
            found += [each["uri"] for each in page["skills"]]
            if "nextCursor" not in page:
                return found
            cursor = {"cursor": page["nextCursor"]}

    async def extensions(self, revision: str = NEW, principal: Principal = ADA) -> dict[str, Any]:
        """The extensions that it declares."""
        method = "server/discover" if revision == NEW else "initialize"
        return (await self.ask(method, revision, principal))["capabilities"].get("extensions", {})


@pytest.fixture
async def hub(world: World) -> Any:
    """A hub with two servers that have a skill at the same URI; `two` has another one, and reads directories."""
    serves(world.peers["one"], skill("refunds", "examples/email.md"))
    serves(world.peers["two"], skill("refunds"), skill("shop://acme/billing/returns"), directories=True)
    world.peers["two"].era = Era.STATELESS
    async with world.hub(server("one"), server("two")) as hub:
        await until(
            lambda: all(each.freshness is not Freshness.UNKNOWN for each in hub.catalog.select(CatalogFilter()))
        )
        yield hub


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_profile_lists_the_skills_of_all_its_servers_by_uris_that_tell_them_apart(
    hub: Hub, revision: str
) -> None:
    listed = await Shown(hub).ask("skills/list", revision)
    assert [each["uri"] for each in listed["skills"]] == [
        "skill://one/refunds/SKILL.md",
        "skill://two/refunds/SKILL.md",
        "hubbub://s/two/shop://acme/billing/returns/SKILL.md",
    ]
    assert {name: listed.get(name) for name in ("resultType", "ttlMs", "cacheScope")} == (
        {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        if revision == NEW
        else {"resultType": None, "ttlMs": None, "cacheScope": None}
    )


async def test_what_a_skill_says_of_itself_and_its_digests_stay_as_they_are(hub: Hub) -> None:
    entry = (await Shown(hub).ask("skills/list"))["skills"][0]
    assert entry["frontmatter"] == skill("refunds")["frontmatter"]
    assert entry["resources"] == [
        {"uri": "skill://one/refunds/SKILL.md", "digest": "sha256:no", "size": -1},
        {"uri": "skill://one/refunds/examples/email.md", "digest": "sha256:no", "size": -1},
    ]


async def test_a_profile_shows_the_skills_of_servers_that_may_be_called(hub: Hub) -> None:
    assert await Shown(hub).skills(principal=OF_TWO) == [
        "skill://two/refunds/SKILL.md",
        "hubbub://s/two/shop://acme/billing/returns/SKILL.md",
    ]
    with pytest.raises(Refused) as refused:
        await Shown(hub).ask("skills/get", principal=OF_TWO, uri="skill://one/refunds/SKILL.md")
    assert refused.value.code == -32602


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_skill_is_got_from_its_server_by_its_own_uri(hub: Hub, world: World, revision: str) -> None:
    async def get(_sent: Sent) -> Outcome:
        return {"resultType": "complete", "skill": skill("refunds"), "ttlMs": 7, "cacheScope": "public"}

    world.peers["two"].behaviour = get
    got = await Shown(hub).ask("skills/get", revision, uri="skill://two/refunds/SKILL.md")
    assert (world.peers["two"].sent[-1].method, world.peers["two"].sent[-1].params) == (
        "skills/get",
        {"uri": "skill://refunds/SKILL.md"},
    )
    assert got["skill"]["uri"] == got["skill"]["resources"][0]["uri"] == "skill://two/refunds/SKILL.md"
    assert ("ttlMs" in got) == (revision == NEW)


async def test_a_directory_is_read_at_its_server_in_the_pages_of_that_server(hub: Hub, world: World) -> None:
    async def read(_sent: Sent) -> Outcome:
        return {
            "resources": [{"uri": "skill://refunds/a", "name": "a", "mimeType": "inode/directory"}],
            "nextCursor": "2",
        }

    world.peers["two"].behaviour = read
    got = await Shown(hub).ask("resources/directory/read", uri="skill://two/refunds", cursor="1")
    assert world.peers["two"].sent[-1].params == {"uri": "skill://refunds", "cursor": "1"}
    assert got["resources"] == [{"uri": "skill://two/refunds/a", "name": "a", "mimeType": "inode/directory"}]
    assert got["nextCursor"] == "2"


async def test_a_server_that_reads_no_directories_is_not_asked_to(hub: Hub, world: World) -> None:
    with pytest.raises(Refused, match="one, reads no directories") as refused:
        await Shown(hub).ask("resources/directory/read", uri="skill://one/refunds")
    assert (refused.value.code, world.peers["one"].sent) == (-32602, [])
    with pytest.raises(Refused) as refused:
        await Shown(hub, own="one").ask("resources/directory/read", uri="skill://refunds")
    assert (refused.value.code, world.peers["one"].sent) == (-32601, [])


async def test_an_own_uri_of_one_server_leads_there_and_that_of_several_to_their_names(hub: Hub, world: World) -> None:
    await Shown(hub).ask("skills/get", uri="shop://acme/billing/returns/SKILL.md")
    assert world.peers["two"].sent[-1].params == {"uri": "shop://acme/billing/returns/SKILL.md"}
    with pytest.raises(Refused, match=r"skill://one/refunds/SKILL.md and skill://two/refunds/SKILL.md"):
        await Shown(hub).ask("skills/get", uri="skill://refunds/SKILL.md")


@pytest.mark.parametrize("revision", REVISIONS)
async def test_skills_are_declared_where_they_are_served(hub: Hub, revision: str) -> None:
    assert (await Shown(hub).extensions(revision))[SKILLS] == {"directoryRead": True}
    assert (await Shown(hub, servers=["one"]).extensions(revision))[SKILLS] == {}
    assert (await Shown(hub, own="one").extensions(revision))[SKILLS] == {}
    assert (await Shown(hub, own="two").extensions(revision))[SKILLS] == {"directoryRead": True}
    for without in (Shown(hub, servers=["none"]), Shown(hub, resources=False)):
        assert SKILLS not in await without.extensions(revision)
        for method in ("skills/list", "skills/get", "resources/directory/read"):
            with pytest.raises(Refused) as refused:
                await without.ask(method, revision, uri="skill://one/refunds/SKILL.md")
            assert refused.value.code == -32601


async def test_a_server_s_own_endpoint_has_its_own_uris(hub: Hub, world: World) -> None:
    own = Shown(hub, own="two")
    assert await own.skills() == ["skill://refunds/SKILL.md", "shop://acme/billing/returns/SKILL.md"]
    await own.ask("skills/get", uri="skill://whatever/SKILL.md")
    assert world.peers["two"].sent[-1].params == {"uri": "skill://whatever/SKILL.md"}


@pytest.mark.parametrize("method", ["com.example/do", "skills/delete", "skills/LIST", "resources/directory/write"])
async def test_methods_of_extensions_that_the_hub_does_not_know_are_not_passed_on(world: World, method: str) -> None:
    serves(world.peer)
    world.peer.capabilities["extensions"]["com.example/thing"] = {}
    async with world.hub(server()) as hub:
        await until(lambda: hub.servers.get("one").connection.state is ConnectionState.CONNECTED)
        own = Shown(hub, own="one")
        assert "com.example/thing" not in await own.extensions()
        with pytest.raises(Refused) as refused:
            await own.ask(method)
        assert (refused.value.code, world.peer.sent) == (-32601, [])


async def test_skills_of_a_server_that_is_away_are_the_last_known_ones(hub: Hub, world: World) -> None:
    world.peers["one"].always = ConnectionRefusedError()
    world.peers["one"].link.lose()
    await settle(1)
    assert "skill://one/refunds/SKILL.md" in await Shown(hub).skills()


@pytest.mark.parametrize("own", ["", "one"])
async def test_skills_that_were_listed_are_there_after_a_restart_while_their_server_connects(
    world: World, own: str
) -> None:
    serves(world.peer, skill("refunds"))
    async with world.hub(server()) as hub:
        await until(lambda: hub.catalog.entries(list_id("one", CatalogKind.SKILL)) != ())
    world.peer.plan.append(30.0)
    async with world.hub(server(connect_timeout_s=60)) as hub:
        shown, uri = Shown(hub, own), "skill://refunds/SKILL.md" if own else "skill://one/refunds/SKILL.md"
        assert await shown.extensions(OLD) == {SKILLS: {}}
        assert await shown.skills() == [uri]
        await shown.ask("skills/get", uri=uri)
        assert world.peer.sent[-1].params == {"uri": "skill://refunds/SKILL.md"}


async def test_a_host_hears_of_changed_skills_as_of_changed_resources(hub: Hub, world: World) -> None:
    shown, said = Shown(hub), list[bytes]()
    host = McpHost(principal=ADA, revision=OLD)

    def tell(message: bytes, *, unless_queued: bool) -> None:
        said.append(message)

    notifications = shown.endpoint.make_notifications(host, tell)
    serves(world.peers["one"], skill("refunds"), skill("fresh"))
    world.peers["one"].link.tell("notifications/resources/list_changed")
    await settle(3)
    assert [json.loads(each)["method"] for each in said] == ["notifications/resources/list_changed"]
    assert "skill://one/fresh/SKILL.md" in await shown.skills()
    notifications.close()


@pytest.mark.parametrize(
    "path",
    ["../two/refunds", "a/../../../two/refunds", "%2e%2e/two/refunds", "two/../..//refunds", "a b/ü/refunds", "@x:1"],
)
async def test_no_uri_climbs_out_of_its_server(world: World, path: str) -> None:
    serves(world.peer, skill(path))
    async with world.hub(server(), server("two")) as hub:
        await until(lambda: hub.catalog.entries(list_id("one", CatalogKind.SKILL)) != ())
        (uri,) = await Shown(hub).skills()
        assert uri == f"skill://one/{path}/SKILL.md"
        await Shown(hub).ask("skills/get", uri=uri)
        assert world.peer.sent[-1].params == {"uri": f"skill://{path}/SKILL.md"}


async def test_a_name_that_does_not_match_its_uri_is_for_hosts_to_judge(world: World) -> None:
    serves(world.peer, skill("refunds", name="other"))
    async with world.hub(server()) as hub:
        await until(lambda: hub.catalog.entries(list_id("one", CatalogKind.SKILL)) != ())
        listed = await Shown(hub).ask("skills/list")
        assert listed["skills"][0]["frontmatter"]["name"] == "other"


async def test_ten_thousand_skills_are_listed_in_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged_lists, "PAGE_ENTRIES", 4000)
    serves(world.peer, *(skill(f"s{at}") for at in range(10_000)))
    async with world.hub(server()) as hub:
        await until(lambda: len(hub.catalog.entries(list_id("one", CatalogKind.SKILL))) == 10_000)
        assert await Shown(hub).skills() == [f"skill://one/s{at}/SKILL.md" for at in range(10_000)]


@pytest.mark.parametrize("uri", [None, 7, "", "skill://", "skill://three/x/SKILL.md", "x" * 9000])
async def test_a_uri_that_leads_nowhere_is_refused(hub: Hub, uri: object) -> None:
    for method in ("skills/get", "resources/directory/read"):
        with pytest.raises(Refused) as refused:
            await Shown(hub).ask(method, uri=uri)
        assert refused.value.code == -32602
