"""A fleet with servers that the owner of a member's machine added: the trust holds there, and nowhere else."""

from typing import Any

import pytest

from hubbubd.config import ServerConfig
from hubbubd.errors import Category, FailedPrecondition, Fault, PermissionDenied, UpstreamError
from hubbubd.runtime.fleet.operations import FleetOperations

from .conftest import settle, until
from .fleet import Members
from .test_fleet import live_links, of, owner

NEAR = ServerConfig(name="near", url="http://127.0.0.1:9/mcp")
FAR = ServerConfig(name="far", url="https://mcp.example.com/mcp")
NAMED = ServerConfig(name="named", url="http://tickets.corp.example/mcp")


def trusted_at(fleet: Members, name: str) -> bool:
    """Whether a server was held to the rules of trusted ones when it was connected last."""
    held_to = fleet.peers.confinements[name]
    return held_to.trusted


def refuse_without_trust(fleet: Members, code: str, monkeypatch: pytest.MonkeyPatch, **details: str) -> None:
    """Only the attempt to connect finds out what servers need: a private address, or a variable within a secret."""
    connect = fleet.peers.open

    def connecting(config: ServerConfig, *rest: Any) -> Any:
        fault = Fault(code=code, category=Category.CONNECTION, message="not allowed", details=details)
        fleet.peers[config.name].always = None if rest[-1] is None or rest[-1].trusted else UpstreamError(fault)
        return connect(config, *rest)

    monkeypatch.setattr(fleet.peers, "open", connecting)


async def at_b(fleet: Members) -> None:
    """The owner of a's machine has added a server, and b has it."""
    await of(fleet, "a", "b", servers=())
    await fleet.running["a"].hub.servers.add(FAR, trusted=True)
    await until(lambda: live_links(fleet, "far") == 1)
    await settle(2)
    if owner(fleet, "far").name == "a":
        await fleet.running["a"].fleet.move("far", "b")
        await until(lambda: fleet.running["b"].fleet.owns("far") and live_links(fleet, "far") == 1)


@pytest.mark.parametrize("home", ["a", "b"])
async def test_a_server_that_only_its_trust_allows_stays_where_it_was_added(fleet: Members, home: str) -> None:
    await of(fleet, "a", "b", servers=())
    await fleet.running[home].hub.servers.add(NEAR, trusted=True)
    await until(lambda: live_links(fleet, "near") == 1)
    assert owner(fleet, "near").name == home
    assert trusted_at(fleet, "near")
    with pytest.raises(FailedPrecondition) as refused:
        await FleetOperations(fleet.running[home].fleet).move("near")
    assert (refused.value.reason, refused.value.metadata["member"]) == ("SERVER_NOT_MOVABLE", home)
    fleet.running[home].kill()
    await settle(60)
    assert live_links(fleet, "near") == 0
    (left,) = fleet.running.values()
    (unowned,) = FleetOperations(left.fleet).unowned_servers()
    assert f"added: at {home}, which does not live: start it" in unowned.why
    await fleet.start(home)
    await until(lambda: live_links(fleet, "near") == 1)
    assert trusted_at(fleet, "near")


@pytest.mark.parametrize("trusted", [True, False], ids=["of the owner", "of somebody else"])
async def test_a_server_that_needs_no_trust_goes_on_at_another_member_without_it(fleet: Members, trusted: bool) -> None:
    await of(fleet, "a", "b", servers=())
    await fleet.running["a"].hub.servers.add(FAR, trusted=trusted)
    await until(lambda: live_links(fleet, "far") == 1)
    await settle(2)
    if owner(fleet, "far").name == "b":
        await fleet.running["b"].fleet.move("far", "a")
        await until(lambda: fleet.running["a"].fleet.owns("far") and live_links(fleet, "far") == 1)
    assert trusted_at(fleet, "far") is trusted
    fleet.running["a"].kill()
    await until(lambda: fleet.running["b"].fleet.owns("far") and live_links(fleet, "far") == 1)
    assert not trusted_at(fleet, "far")


async def test_a_member_that_allows_a_trusted_server_itself_may_have_it(fleet: Members) -> None:
    await fleet.start("a")
    fleet.settings["hub"] = {"allow_hosts": ("public", "127.0.0.1")}
    await fleet.start("b")
    await fleet.running["a"].hub.servers.add(NEAR, trusted=True)
    await until(lambda: live_links(fleet, "near") == 1)
    await settle(2)
    if "a" in fleet.owners("near"):
        fleet.running["a"].kill()
    await until(lambda: fleet.owners("near") == ["b"] and live_links(fleet, "near") == 1)
    assert not trusted_at(fleet, "near")


@pytest.mark.parametrize(("home", "code"), [("a", "HOST_NOT_ALLOWED"), ("b", "VARIABLE_NOT_ALLOWED")])
async def test_a_server_that_turns_out_to_need_trust_is_given_back_for_good(
    fleet: Members, home: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_without_trust(fleet, code, monkeypatch)
    await of(fleet, "a", "b", servers=())
    await fleet.running[home].hub.servers.add(NAMED, trusted=True)
    (other,) = {"a", "b"} - {home}
    await settle(10)
    if fleet.owners("named") == [home] and not fleet.running[home].hub.servers.get("named").bound:  # it was there first
        await fleet.running[home].fleet.move("named", other)
        await settle(10)
    assert (fleet.owners("named"), live_links(fleet, "named")) == ([home], 1)
    settings = fleet.running[home].hub.configuration.settings
    await fleet.running[home].hub.servers.adopt({}, settings.model_copy(update={"deny_hosts": ("192.0.2.1",)}))
    await settle(10)
    assert (fleet.owners("named"), live_links(fleet, "named")) == ([home], 1)
    fleet.running[home].kill()
    attempts = len(fleet.peers["named"].attempts)
    await settle(60)
    assert (live_links(fleet, "named"), len(fleet.peers["named"].attempts)) == (0, attempts)


async def test_a_change_by_the_owner_of_another_machine_is_trusted_there(fleet: Members) -> None:
    await at_b(fleet)
    there = fleet.running["b"].hub.servers

    def near(config: ServerConfig) -> ServerConfig:
        return config.model_copy(update={"url": NEAR.url})

    with pytest.raises(PermissionDenied):  # a part: the other ones are of the owner of another machine
        await there.change("far", near, decide_trust=lambda before: before)
    changed = await there.change("far", near, decide_trust=lambda _: True)
    assert (changed.trusted, changed.home) == (True, "b")
    await until(lambda: live_links(fleet, "far") == 1)
    assert trusted_at(fleet, "far")
    await settle(5)
    assert owner(fleet, "far").name == "b"
    fleet.running["b"].kill()
    await settle(60)
    assert live_links(fleet, "far") == 0


async def test_a_partial_change_elsewhere_that_needs_no_trust_ends_it(fleet: Members) -> None:
    await at_b(fleet)
    changed = await fleet.running["b"].hub.servers.change(
        "far", lambda config: config.model_copy(update={"call_timeout_s": 7}), decide_trust=lambda before: before
    )
    assert not changed.trusted


async def test_a_change_by_the_owner_of_another_machine_holds_for_the_connection_too(fleet: Members) -> None:
    await at_b(fleet)
    assert not trusted_at(fleet, "far")
    patient = FAR.model_copy(update={"call_timeout_s": 7})
    await fleet.running["b"].hub.servers.change("far", lambda _: patient, decide_trust=lambda _: True)
    await until(lambda: trusted_at(fleet, "far") and live_links(fleet, "far") == 1)


@pytest.mark.parametrize(("host", "bound"), [("mcp.example.com", True), ("login.example.com", False)])
async def test_a_server_is_bound_by_a_refusal_of_its_own_host_only(
    fleet: Members, monkeypatch: pytest.MonkeyPatch, host: str, bound: bool
) -> None:
    await at_b(fleet)
    refuse_without_trust(fleet, "HOST_NOT_ALLOWED", monkeypatch, host=host)
    fleet.peers["far"].link.lose()
    await settle(20)
    assert fleet.running["a"].hub.servers.get("far").bound is bound
    assert owner(fleet, "far").name == ("a" if bound else "b")
