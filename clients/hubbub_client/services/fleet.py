"""`hub.fleet`: the members of a hub that is several, and which member has which server."""

from dataclasses import dataclass
from typing import Literal

from hubbub.v1 import fleet_pb2
from hubbub_client.data.conversion import read
from hubbub_client.data.records import RECORDS, Record
from hubbub_client.services.service import HubService

MemberState = Literal["live", "draining", "gone"]


@dataclass(frozen=True, kw_only=True)
class FleetMember(Record):
    """A member, and its servers.

    `life` is the number of its start, `forward` is its address for other members (HOST:PORT). `position` is the
    revision of the store up to which it had read, and `lag` by how many revisions it was behind. `silent_ms` is the
    time since its last sign of life, `overdue` whether that is too long, `schema` the newest version of the store's
    schema that it knows.
    """

    name: str
    state: MemberState
    address: str | None
    version: str | None
    servers: tuple[str, ...]
    life: int
    forward: str | None
    position: int
    lag: int
    silent_ms: int
    overdue: bool
    schema: int


@dataclass(frozen=True, kw_only=True)
class UnownedServer(Record):
    """A server that no member has, why, and for how long."""

    server: str
    why: str
    since_ms: int


@dataclass(frozen=True, kw_only=True)
class FleetStatus(Record):
    """The fleet as `member` sees it, whose clock is behind the database's by `clock_offset_ms`.

    `schema` is the version of the store's schema. While `required_schema` is less, an upgrade is under way.
    """

    members: tuple[FleetMember, ...]
    unowned: tuple[UnownedServer, ...]
    member: str
    clock_offset_ms: int
    revision: int
    schema: int
    required_schema: int

    def owner(self, server: str) -> str | None:
        """Return the name of the member that has a server; None if no member has it."""
        return next((each.name for each in self.members if server in each.servers), None)

    def find(self, name: str) -> FleetMember | None:
        """Return the member with this name; None if there is none."""
        return next((each for each in self.members if each.name == name), None)


@dataclass(frozen=True, kw_only=True)
class Moved(Record):
    """A server was moved: since this `revision` of the store, `member` may take it."""

    member: str
    revision: int


@dataclass(frozen=True, kw_only=True)
class Rotation(Record):
    """How many of the `rows` of the vault are sealed with the first key."""

    sealed: int
    rows: int


# Registered here, so that the converter finds the record of each message.
RECORDS.update(
    {
        "FleetMember": FleetMember,
        "UnownedServer": UnownedServer,
        "GetFleetResponse": FleetStatus,
        "MoveServerResponse": Moved,
        "RotateVaultKeyResponse": Rotation,
    }
)


class Fleet(HubService):
    """FleetService. Every method raises HubbubError; FailedPrecondition (NO_FLEET) at a hub that is alone."""

    async def status(self) -> FleetStatus:
        """Return the members, their servers, and the servers that no member has."""
        return read(
            FleetStatus, await self._connection.call(lambda hub: hub.fleet.GetFleet, fleet_pb2.GetFleetRequest())
        )

    async def move(self, server: str, member: str | None = None) -> Moved:
        """Move a server to a member, by default one that the hub chooses.

        That member takes the server within seconds, as a `status` of a later revision shows.
        """
        request = fleet_pb2.MoveServerRequest(server=server, member=member or "")
        return read(Moved, await self._connection.call(lambda hub: hub.fleet.MoveServer, request))

    async def drain(self, member: str | None = None) -> str:
        """Start to move all servers away from a member, by default the connected one; return its name at once."""
        request = fleet_pb2.DrainMemberRequest(member=member or "")
        return (await self._connection.call(lambda hub: hub.fleet.DrainMember, request)).member

    async def resume(self, member: str | None = None) -> str:
        """Let a member take servers again, and return its name."""
        request = fleet_pb2.ResumeMemberRequest(member=member or "")
        return (await self._connection.call(lambda hub: hub.fleet.ResumeMember, request)).member

    async def expel(self, member: str, *, dead: bool = False, force: bool = False) -> str:
        """Declare a member gone that is overdue, and return its name.

        With `dead`, the caller knows that the member's process has ended. Then the member need not be overdue, but it
        must not answer the member that is connected; with `force`, it may answer.
        """
        request = fleet_pb2.ExpelMemberRequest(member=member, dead=dead, force=force)
        return (await self._connection.call(lambda hub: hub.fleet.ExpelMember, request)).member

    async def rotate_key(self) -> Rotation:
        """Seal all secrets of servers with the first key of the connected member; return how many are sealed so."""
        request = fleet_pb2.RotateVaultKeyRequest()
        return read(Rotation, await self._connection.call(lambda hub: hub.fleet.RotateVaultKey, request))

    async def finish_upgrade(self) -> int:
        """End an upgrade: refuse hubs of an older version from now on, and return the version of the store's schema.

        Raises FailedPrecondition (MEMBERS_OUTDATED) while a member is of an older version.
        """
        request = fleet_pb2.FinishUpgradeRequest()
        return (await self._connection.call(lambda hub: hub.fleet.FinishUpgrade, request)).schema
