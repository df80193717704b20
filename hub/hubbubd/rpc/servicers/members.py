"""FleetService: operators see and change a fleet. A hub without a fleet refuses each RPC."""

from typing import TYPE_CHECKING

from hubbub.v1 import fleet_pb2 as pb
from hubbubd.errors import FailedPrecondition
from hubbubd.members import Member, MemberStatus
from hubbubd.rpc.messages import requests, values
from hubbubd.runtime.hub import Hub

if TYPE_CHECKING:
    from hubbubd.runtime.fleet.member import FleetOwnership
    from hubbubd.runtime.fleet.operations import FleetOperations

_STATES = {status: pb.MemberState.Value(f"MEMBER_STATE_{status.name}") for status in MemberStatus}


class FleetAdminService:
    """Implements hubbub.v1.FleetService."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def get_fleet(self, _request: pb.GetFleetRequest) -> pb.GetFleetResponse:
        """Return what this member knows of the fleet."""
        operations, fleet = self._operations(), self._fleet()
        owned, revision = operations.servers_by_owner(), self._hub.store.revision
        schema = fleet.membership.schema
        return pb.GetFleetResponse(
            members=[_render_member(each, owned.get(each.name, []), revision) for each in fleet.members()],
            unowned=[
                pb.UnownedServer(server=each.server, why=each.why, since=values.duration(each.free_s))
                for each in operations.unowned_servers()
            ],
            member=fleet.me,
            clock_offset=values.duration(fleet.time.ahead_s),
            revision=revision,
            schema=schema.version,
            required_schema=schema.required,
        )

    async def move_server(self, request: pb.MoveServerRequest) -> pb.MoveServerResponse:
        """Hand a server of this member to another one, which the hub chooses if none is named.

        Returns the member that takes the server, and the store's revision.
        """
        server = requests.identifier(request.server, "server")
        target = requests.optional_identifier(request.member, "member") or ""
        new_owner = await self._operations().move(server, target)
        return pb.MoveServerResponse(member=new_owner, revision=self._hub.store.revision)

    async def drain_member(self, request: pb.DrainMemberRequest) -> pb.DrainMemberResponse:
        """Have a member, by default this one, hand its servers over; return its name at once."""
        return pb.DrainMemberResponse(member=await self._set_status(request.member, MemberStatus.DRAINING))

    async def resume_member(self, request: pb.ResumeMemberRequest) -> pb.ResumeMemberResponse:
        """Have a member, by default this one, take servers again; return its name."""
        return pb.ResumeMemberResponse(member=await self._set_status(request.member, MemberStatus.LIVE))

    async def _set_status(self, member: str, status: MemberStatus) -> str:
        """Set the status of a member, of this one if the name is empty, and return the name."""
        name = requests.optional_identifier(member, "member") or ""
        return await self._operations().set_status(name, status)

    async def expel_member(self, request: pb.ExpelMemberRequest) -> pb.ExpelMemberResponse:
        """Declare a member gone that is overdue, or that the caller says is `dead`; return its name."""
        member = requests.identifier(request.member, "member")
        expelled = await self._operations().expel(member, dead=request.dead, force=request.force)
        return pb.ExpelMemberResponse(member=expelled)

    async def rotate_vault_key(self, _request: pb.RotateVaultKeyRequest) -> pb.RotateVaultKeyResponse:
        """Seal all secrets of servers with the first key; return the numbers of rows sealed so, and of all rows."""
        resealed, rows = await self._operations().rotate_key()
        return pb.RotateVaultKeyResponse(sealed=resealed, rows=rows)

    async def finish_upgrade(self, _request: pb.FinishUpgradeRequest) -> pb.FinishUpgradeResponse:
        """Refuse hubs of an older version from now on; return the version of the store's schema."""
        return pb.FinishUpgradeResponse(schema=await self._operations().finish_upgrade())

    def _operations(self) -> "FleetOperations":
        """Return what operators can do with the fleet. Raises FailedPrecondition (NO_FLEET)."""
        fleet = self._fleet()
        from hubbubd.runtime.fleet.operations import FleetOperations  # lazy: few hubs are members of a fleet

        return FleetOperations(fleet)

    def _fleet(self) -> "FleetOwnership":
        """Return the fleet. Raises FailedPrecondition (NO_FLEET) for a hub that is no member of one."""
        if self._hub.fleet is None:
            raise FailedPrecondition(
                "this hub is no member of a fleet: it has no [fleet] in its configuration (docs/configuration.md)",
                reason="NO_FLEET",
            )
        return self._hub.fleet


def _render_member(member: Member, servers: list[str], revision: int) -> pb.FleetMember:
    """Return a member as a message; `revision` is the store's, from which its lag is counted."""
    return pb.FleetMember(
        name=member.name,
        state=_STATES[member.status],
        address=member.address,
        version=member.version,
        servers=servers,
        life=member.term,
        forward=member.forward,
        position=member.position,
        lag=max(revision - member.position, 0),
        silent=values.duration(member.silent_s),
        overdue=member.overdue and member.status is not MemberStatus.GONE,
        schema=member.schema,
    )
