"""Which servers this member of a fleet may have, and after whom."""

from collections.abc import Callable, Mapping
from typing import Final

from hubbubd.config import ServerConfig
from hubbubd.core.servers.server_record import ServerRecord
from hubbubd.runtime.ownership import Ownership
from hubbubd.runtime.records import Table
from hubbubd.runtime.servers.active_servers import ActiveServers
from hubbubd.runtime.servers.config.confinement import ConfinementCheck

DIFFERS_S: Final = 10.0
"""Seconds for which a member whose files have another server under a name lets others take that server first."""


class CandidateServers:
    """The servers that a member of a fleet might take; implements `runtime.ownership.Candidates`."""

    def __init__(
        self,
        *,
        table: Table[ServerRecord],
        active: ActiveServers,
        confinement_check: ConfinementCheck,
        configured: Callable[[], Mapping[str, ServerConfig]],
        ownership: Ownership,
        is_at_work: Callable[[str], bool],
    ) -> None:
        """`configured` returns the servers of this member's files; `is_at_work`, whether one is at work here."""
        self._table = table
        self._active = active
        self._confinement_check = confinement_check
        self._configured = configured
        self._ownership = ownership
        self._is_at_work = is_at_work

    def takeover_delay_s(self, server: str) -> float | None:
        """Return for how many seconds this hub lets others take a server first; None if this hub must never take it.

        A server of files is taken by members whose files have it. A server that starts a command, or needs the trust
        of a machine's owner, is taken by the member where it was added alone.
        """
        record, config = self._table.record(server), self._configured().get(server)
        if config is not None:
            is_same = record is None or record.source == "api" or record.fingerprint == config.fingerprint
            return 0.0 if is_same else DIFFERS_S
        if record is None or record.source == "file":
            return None  # there is no such server, or only files of other members have it
        if self.home(server) not in ("", self._ownership.me):
            return None
        return 0.0 if self._confinement_check.admits(record) else None  # None if this machine's settings forbid it

    def home(self, server: str) -> str:
        """Return the only member that may have a server, where it was added; "" if it is not bound to one member."""
        record = self._table.record(server)
        if record is None or record.source == "file":
            return ""
        is_bound = record.config.transport == "stdio" or self._confinement_check.depends_on_trust(record)
        return record.home if is_bound else ""

    def is_at_work(self, server: str) -> bool:
        """Return whether a server is at work here, or is being changed, when it may be missing for a moment."""
        return self._is_at_work(server)

    def servers_at_work(self) -> list[str]:
        """Return the names of the active servers: those whose connection, queue and calls this member runs."""
        return list(self._active)

    def is_idle(self, server: str) -> bool:
        """Return whether no call of a server is under way."""
        parts = self._active.get(server)
        return parts is None or not parts.queue.calls

    def server_names(self) -> set[str]:
        """Return the names of all servers, also of those in this hub's files that no member has taken yet."""
        return {*self._configured(), *(record.name for record in self._table)}

    def find_differing(self) -> list[str]:
        """Return the names of servers that differ between this hub's files and the members that serve them."""
        elsewhere = [record for record in self._table if not self._ownership.owns(record.name)]
        pairs = [(record, self._configured().get(record.name)) for record in elsewhere if record.source == "file"]
        return [record.name for record, config in pairs if config and config.fingerprint != record.fingerprint]
