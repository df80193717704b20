"""Which member of a fleet has which server: decisions over leases and members.

A lease changes in two ways only: its holder gives it up, or its holder is gone. The database's clock alone decides who
is gone, and a member that is gone commits nothing more (`store/membership.py`). So a lease needs no other fence.

Who takes a free lease, each member decides for itself. All put the members into the same order (rendezvous hashing:
Thaler and Ravishankar, 1998), and each waits for its turn, so that seldom two try at once.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hubbubd.core.servers.server_record import NOBODY, UPKEEP, Lease
from hubbubd.members import Member, MemberStatus

TURN_S = 1.0
"""Seconds that each member lets those before it go first."""

SURPLUS = 1.2
"""A member with more than this times its share of the servers hands some on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """What a member, `me`, knows when it decides; `term` is the number of its term, `store` the id of its store.

    `members` are all of the fleet by name, `leases` all leases by server. `free_since` has the time since which each
    free server is free. That time and `now` are seconds of this member's steady clock.
    """

    me: str
    term: int
    store: str
    members: Mapping[str, Member]
    leases: Mapping[str, Lease]
    free_since: Mapping[str, float]
    now: float

    def holder(self, server: str) -> Member | None:
        """Return the member that has a server, as far as this member knows; None if no known member has it.

        A lease from an earlier term of its holder counts no more.
        """
        lease = self.leases.get(server)
        if lease is None or lease.store != self.store:
            return None
        member = self.members.get(lease.member)
        return member if member is not None and member.term == lease.life else None

    def is_free(self, server: str) -> bool:
        """Return whether it is certain that no member has a server.

        False means that this is not certain: a holder that this member does not know may have joined a moment ago.
        """
        lease = self.leases.get(server)
        if lease is None or lease.member == NOBODY or lease.store != self.store:
            return True
        member = self.members.get(lease.member)
        if member is None:
            # A later term has a greater number: a holder whose term began before that of a known member is gone and
            # forgotten, and any other holder may have joined since.
            return lease.life < max((each.term for each in self.members.values()), default=0)
        return member.term > lease.life or (member.term == lease.life and member.status is MemberStatus.GONE)

    def free_servers(self, servers: Iterable[str]) -> list[str]:
        """Return the free ones among the servers."""
        return [server for server in servers if self.is_free(server)]

    def takers_in_order(self, server: str) -> list[str]:
        """Return the names of the members that may take a server; the one that should take it comes first.

        That is the member for which the server was given up (the lease's `wish`). Then comes the member that had the
        server, if it has started again. The others follow in the order of a hash.
        """
        lease = self.leases.get(server) or Lease(server=server)
        names = [member.name for member in self.members.values() if member.serves]
        return sorted(names, key=lambda name: (name != lease.wish, name != lease.member, _rank(server, name)))

    def servers_to_take(self, servers: Iterable[str], delay_s_of: Callable[[str], float | None]) -> list[str]:
        """Return the servers that this member should take now.

        `delay_s_of` returns the seconds by which this member lets others go first, beyond its turn in the order; None
        if this member must not have the server.
        """
        me = self.members.get(self.me)
        if me is None or me.term != self.term or me.status is not MemberStatus.LIVE:
            return []
        chosen: list[str] = []
        for server in self.free_servers(servers):
            delay_s = delay_s_of(server)
            order = self.takers_in_order(server)
            if delay_s is None or self.me not in order:
                continue
            since = self.free_since.get(server, self.now)
            if self.now >= since + order.index(self.me) * TURN_S + delay_s:
                chosen.append(server)
        return chosen

    def overdue_members(self) -> list[Member]:
        """Return the other members whose heartbeats are overdue, and that are not gone yet."""
        others = (member for member in self.members.values() if member.name != self.me)
        return [member for member in others if member.overdue and member.status is not MemberStatus.GONE]

    def choose_handover(self, may_go: Callable[[str], bool]) -> tuple[str, str] | None:
        """Return a server that this member should hand over, and the name of its new member; None if none.

        A member hands over while it has more than its share of the servers. `may_go` returns whether a server is idle
        enough.
        """
        servers_by_holder = self._servers_by_holder()
        serving_members = [member.name for member in self.members.values() if member.serves]
        own_servers = servers_by_holder.get(self.me, [])
        share = sum(map(len, servers_by_holder.values())) / max(len(serving_members), 1)
        # One server more than its share is never too many, as shares are no whole numbers.
        if self.me not in serving_members or len(own_servers) <= max(share * SURPLUS, share + 1):
            return None
        members_below_share = [
            name for name in serving_members if len(servers_by_holder.get(name, ())) < share and name != self.me
        ]
        for server in filter(may_go, own_servers):
            if (
                receiver := next((name for name in self.takers_in_order(server) if name in members_below_share), None)
            ) is not None:
                return server, receiver
        return None

    def _servers_by_holder(self) -> dict[str, list[str]]:
        """Return the servers that each member is known to have, by the member's name.

        The lease UPKEEP is left out: it is no server's, but stands for the care of the store.
        """
        servers_by_holder: dict[str, list[str]] = {}
        for server in self.leases.keys() - {UPKEEP}:
            if (member := self.holder(server)) is not None:
                servers_by_holder.setdefault(member.name, []).append(server)
        return servers_by_holder


def _rank(server: str, name: str) -> bytes:
    """Return the sort key by which members take a server: a hash of both names (rendezvous hashing)."""
    return hashlib.sha256(f"{server}\0{name}".encode()).digest()
