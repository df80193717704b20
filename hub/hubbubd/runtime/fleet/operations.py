"""What operators see and change of a fleet: who takes part, who has which server, and which servers nobody has."""

from dataclasses import dataclass

import structlog

from hubbubd.errors import FailedPrecondition, NotFound
from hubbubd.members import Member, MemberStatus
from hubbubd.runtime.fleet.member import FleetOwnership
from hubbubd.runtime.ownership import UPKEEP, Owner, owner_changing_error

log = structlog.get_logger(__name__)

STAYS = "it starts a command, or is allowed only as the owner of a machine added it"
"""Why a server is bound to a member."""

SETTLED_S = 10.0
"""Seconds for which a server may be free without a reason: a member is about to take it."""


@dataclass(frozen=True, slots=True)
class Unowned:
    """A server that no member has: `why` as a text for people, and for how many seconds as far as this member knows."""

    server: str
    why: str
    free_s: float


class FleetOperations:
    """What operators do with a fleet, at one of its members."""

    def __init__(self, fleet: FleetOwnership) -> None:
        self._fleet = fleet

    def servers_by_owner(self) -> dict[str, list[str]]:
        """Return, by member, the sorted names of the servers that it has; leases that have ended do not count.

        UPKEEP, which has a lease as well, is left out: it is no server.
        """
        servers_by_member: dict[str, list[str]] = {}
        for server in sorted(self._fleet.ownable_names() - {UPKEEP}):
            lease = self._fleet.lease(server)
            if lease is not None and not self._fleet.is_free(server):
                servers_by_member.setdefault(lease.member, []).append(server)
        return servers_by_member

    def unowned_servers(self) -> list[Unowned]:
        """Return the servers that nobody has, in order of their names."""
        view = self._fleet.view()
        free = [server for server in sorted(self._fleet.ownable_names() - {UPKEEP}) if view.is_free(server)]
        free_s = {server: max(view.now - view.free_since.get(server, view.now), 0.0) for server in free}
        return [Unowned(server, self._why_unowned(server, for_s), for_s) for server, for_s in free_s.items()]

    def _why_unowned(self, server: str, free_s: float) -> str:
        """Return for people why no member has a server, which has been free for `free_s` seconds, and what helps."""
        members = self._fleet.members()
        if not any(member.serves for member in members):
            return "no member takes servers: all drain, have ended, or were not heard of; start one, or resume one"
        if home := self._fleet.home(server):
            home_member = next((member for member in members if member.name == home), None)
            if home_member is None or not home_member.serves:
                state = (
                    "drains: resume it"
                    if home_member is not None and _is_draining(home_member)
                    else "does not live: start it"
                )
                return f"{STAYS}, so it stays where it was added: at {home}, which {state}, or remove it"
        if free_s < SETTLED_S:
            return "it has just become free; a member takes it within seconds"
        return (
            "no member that takes servers may have it: see that a live one has it in its configuration file, or allows"
            " servers that were added over the API"
        )

    async def move(self, server: str, to: str = "") -> str:
        """Hand over a server of this member, and return the name of the member that is to have it.

        `to` is that name, "" to choose one; nothing happens if `to` is this member. Raises NotFound, FailedPrecondition
        (MEMBER_NOT_LIVE, SERVER_NOT_MOVABLE) and Unavailable (OWNER_CHANGING).
        """
        if server == UPKEEP or server not in self._fleet.ownable_names():
            raise NotFound("server", server)
        if not self._fleet.owns(server):
            raise owner_changing_error(server)
        if to == self._fleet.me:
            return to
        to = await self._find_taker(server, to)
        if home := self._fleet.home(server):
            raise FailedPrecondition(
                f"{server} cannot go: {STAYS}, so it stays where it was added: at {home}. To have it elsewhere, remove"
                " it and add it there",
                reason="SERVER_NOT_MOVABLE",
                metadata={"server": server, "member": home},
            )
        await self._fleet.move(server, to)
        return to

    async def _find_taker(self, server: str, to: str) -> str:
        """Return the name of the member that is to have a server: `to`, or for "" the other member that is first.

        Raises NotFound, StoreUnavailable, and FailedPrecondition (MEMBER_NOT_LIVE) if there is none that takes servers.
        """
        if to:
            member = await self._find_member(to)
            if not member.serves:
                raise _not_live_error(member)
            return to
        await self._fleet.refresh_members()
        others = [name for name in self._fleet.view().takers_in_order(server) if name != self._fleet.me]
        if not others:
            raise FailedPrecondition(
                f"no other member takes servers, so {server} stays at {self._fleet.me}; start one, or resume one",
                reason="MEMBER_NOT_LIVE",
                metadata={"member": self._fleet.me},
            )
        return others[0]

    async def set_status(self, name: str, status: MemberStatus) -> str:
        """Set whether a member drains (hands its servers over) or takes servers; return its name.

        An empty name stands for this member. Raises NotFound, FailedPrecondition (MEMBER_NOT_LIVE) for a member that is
        gone, and StoreUnavailable.
        """
        member = await self._find_member(name or self._fleet.me)
        if member.status is MemberStatus.GONE or not await self._fleet.set_status(member, status):
            raise _not_live_error(member)
        log.info("standing of a member set", member=member.name, standing=status.value)
        return member.name

    async def expel(self, name: str, *, dead: bool, force: bool) -> str:
        """Declare a member gone, and return its name. Others take its servers. If its process lives, it starts again.

        Without `dead` the member must be overdue (no heartbeat in time). With `dead` the caller says that the process
        of the member has ended: then the member must not answer, unless `force` leaves out that check. Nothing happens
        if the member is gone already. Raises NotFound, FailedPrecondition (MEMBER_LIVES), and StoreUnavailable.
        """
        member = await self._find_member(name)
        if member.name == self._fleet.me:
            raise _lives_error(member, "it is the one that you ask; drain it, or stop it")
        if member.status is MemberStatus.GONE:
            return member.name
        if not dead:
            if not await self._fleet.expel(member):
                raise _lives_error(member, self._why_not_expelled(member))
        elif not force and await self._fleet.answers(Owner(member.name, member.term, member.forward)):
            raise _lives_error(member, f"it answers at {member.forward}; drain it, stop it, or force it if it must go")
        else:
            await self._fleet.set_status(member, MemberStatus.GONE)
        log.warning("member declared gone by an operator", member=member.name, life=member.term)
        return member.name

    def _why_not_expelled(self, member: Member) -> str:
        """Return for people why a member was not declared gone, and what to do."""
        if member.overdue:
            wait_s = self._fleet.membership.lease_ttl_s
            return f"{self._fleet.me} has itself not been heard of without a pause for {wait_s:g} s; repeat it then"
        ago = f"it was heard of {member.silent_s:.1f} s ago"
        return f"{ago}; drain it, or say that it is dead if you know that its process has ended"

    async def rotate_key(self) -> tuple[int, int]:
        """Encrypt all secrets of the fleet with the vault's first key.

        Return how many rows have it now, and how many rows there are. Raises Unavailable.
        """
        return await self._fleet.rotate_key()

    def outdated_members(self) -> list[str]:
        """Return the names of the members that do not know the newest schema of the store; gone ones do not count.

        There are such members only while an upgrade is under way.
        """
        version = self._fleet.membership.schema.version
        older = [each for each in self._fleet.members() if each.schema < version]
        return [each.name for each in older if each.status is not MemberStatus.GONE]

    async def finish_upgrade(self) -> int:
        """Refuse hubs from now on that do not know the newest schema of the store; return its version.

        Raises FailedPrecondition (MEMBERS_OUTDATED) while a member does not know it, and StoreUnavailable.
        """
        older = ""
        for _ in range(2):  # again if the last member that did not know it has ended meanwhile
            schema = await self._fleet.membership.finish_upgrade()
            if schema.is_settled:
                log.info("upgrade finished", schema=schema.version)
                self._fleet.scan_soon()
                return schema.version
            await self._fleet.refresh_members()
            if older := ", ".join(self.outdated_members()):
                break
        raise FailedPrecondition(
            f"members of an older version would be refused: {older}; install the new version there, or expel them if"
            " they have ended",
            reason="MEMBERS_OUTDATED",
            metadata={"members": older},
        )

    async def _find_member(self, name: str) -> Member:
        """Read the members, and return the one with this name. Raises NotFound and StoreUnavailable."""
        await self._fleet.refresh_members()
        for member in self._fleet.members():
            if member.name == name:
                return member
        raise NotFound("member", name)


def _is_draining(member: Member) -> bool:
    """Return whether a member drains (hands its servers over), and is not overdue."""
    return member.status is MemberStatus.DRAINING and not member.overdue


def _not_live_error(member: Member) -> FailedPrecondition:
    """Return the error for a member that takes no servers: it is gone, drains, or was not heard of in time."""
    if member.status is MemberStatus.GONE:
        problem = "is gone; it takes part again once it is started"
    elif member.status is MemberStatus.DRAINING:
        problem = "drains, and takes no servers; resume it first"
    else:
        problem = f"was not heard of for {member.silent_s:.1f} s"
    return FailedPrecondition(
        f"the member {member.name} {problem}", reason="MEMBER_NOT_LIVE", metadata={"member": member.name}
    )


def _lives_error(member: Member, why: str) -> FailedPrecondition:
    """Return the error for a member that was not declared gone; `why` is a text for people."""
    return FailedPrecondition(
        f"the member {member.name} was not declared gone: {why}",
        reason="MEMBER_LIVES",
        metadata={"member": member.name},
    )
