"""This hub as a member of a fleet: it sends heartbeats, takes over free servers, and hands over those it gives up.

    beat ──> the database knows that this hub lives ──> it may act for a while
    scan ──> members and leases ──> core ownership decides ──> a lease is committed ──> its server is taken over, or not

Both run by themselves. A member that is found to be gone ends its term, and begins another one. Each beat renews the
lease of the member, its right to act. The `Lease` of a server says which member has that server.
"""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import anyio
import structlog

from hubbub_shared.platform.clocks import elapsed_s
from hubbubd.core.servers.ownership import MemberView
from hubbubd.core.servers.server_record import NOBODY, Lease
from hubbubd.errors import HubError
from hubbubd.members import Expulsion, Member, MemberStatus
from hubbubd.runtime.fleet.clock import FleetClock
from hubbubd.runtime.fleet.handovers import Handovers, RecentHandovers
from hubbubd.runtime.fleet.measures import FleetMeasures, Lag
from hubbubd.runtime.fleet.takeover import ServedLeases
from hubbubd.runtime.fleet.term import MembershipTerm
from hubbubd.runtime.ownership import UPKEEP, Candidates, Owner, OwnershipHooks
from hubbubd.runtime.records import Ledger, Table
from hubbubd.store import StoreUnavailable, WriteConflict
from hubbubd.store.membership import HistoryLost, Membership
from hubbubd.telemetry import meter as metering
from hubbubd.telemetry.meter import Meter

BEATS = 4
"""Heartbeats (beats) in the time of a lease."""
SHORTEST_PAUSE_PARTS = 16
"""A lease's time divided by this is the shortest pause between beats, after one that took longer than the interval."""
STARTING_S = 60.0
"""Seconds for which a starting member is not declared gone: it has no servers, and may be silent while it reads."""
MARGIN = 0.25
"""The part of a lease's time by which a member stops acting before others may take over."""
SCAN_S = 1.0
"""Seconds between scans of the members and leases."""
GIVING_UP_S = 5.0
"""Seconds in which a member that ends gives up its remaining servers. If it cannot, others take them over later."""
POLL_S = 0.05
"""Seconds between checks whether this member may act again."""

log = structlog.get_logger(__name__)


async def _never_answers(_owner: Owner) -> bool:
    """Stand in for `FleetOwnership.answers` until the port for members is there: no member answers yet."""
    return False


async def _read_no_clock(_owner: Owner) -> None:
    """Stand in for `FleetOwnership.clock_of` until the port for members is there: no clock is known yet."""


async def _rotate_nothing() -> tuple[int, int]:
    """Stand in for `FleetOwnership.rotate_key` until there is a vault: there are no rows to encrypt."""
    return 0, 0


class FleetOwnership:
    """What a member of a fleet owns: servers, and maybe UPKEEP. `join` gives it what it works on."""

    def __init__(
        self,
        membership: Membership,
        *,
        drain_timeout_s: float,
        rebalance: bool,
        losses: list[HistoryLost] | None = None,
        now: Callable[[], float] = elapsed_s,
        time: FleetClock | None = None,
    ) -> None:
        """Begin a term (until this member is gone). `losses` of history in former terms are put in the audit log."""
        self.me = membership.name
        self.owns_all = False
        self._term = MembershipTerm(self.me, [] if losses is None else losses)
        self.lost = self._term.ended
        """Set once this member is found to be gone."""
        self.time = time or FleetClock()
        self.answers: Callable[[Owner], Awaitable[bool]] = _never_answers
        """Whether a member answers, at the port for members."""
        self.clock_of: Callable[[Owner], Awaitable[float | None]] = _read_no_clock
        self.rotate_key: Callable[[], Awaitable[tuple[int, int]]] = _rotate_nothing
        """Encrypts all secrets with the first key; returns how many rows have it, of how many. Raises Unavailable."""
        self.membership = membership
        self._drain_timeout_s = drain_timeout_s
        self._rebalance = rebalance
        self._now = now
        self._valid_until = now() + membership.lease_ttl_s * (1 - MARGIN)  # until then this member may act
        self._members: dict[str, Member] = {}
        self._owned: set[str] = set()  # the names of this member's leases
        self._moves = Handovers(self.lost)  # those under way
        self._free_since: dict[str, float] = {}  # by server, when (as `now`) this member saw it without an owner
        self._recent_handovers = RecentHandovers(now)
        self._is_running = False
        self._position: Callable[[], int] = lambda: 0  # the revision up to which this member has read
        self.lag = Lag(self.me, lambda: self._position(), self.members, now)
        self._publish_readiness: Callable[[], None] = lambda: None
        self._listeners: list[Callable[[str], None]] = []
        self._is_ending = False
        self._scan_due = anyio.Event()

    def join(
        self,
        ledger: Ledger,
        leases: Table[Lease],
        servers: Candidates,
        hooks: OwnershipHooks,
        *,
        meter: Meter = metering.OFF,
        note: Callable[[str, str], None] = lambda action, target: None,
    ) -> None:
        """Follow the leases from now on. `note(action, target)` puts in the audit log what this hub does by itself."""
        ledger.health.set_readiness(self.serves)
        self._publish_readiness = ledger.health.publish_change
        self._ledger = ledger
        self._position = lambda: ledger.store.revision
        self._leases = leases
        self._servers = servers
        self._hooks = hooks
        self._served = ServedLeases(
            self.me, servers, hooks, owns=self.owns, due_servers=self._servers_to_serve, may_act=self.may_act
        )
        self._note = note
        leases.follow(self._follow_lease_change)
        self._measures = FleetMeasures(meter, self)  # last: it may be read at once, in another thread

    def owns(self, server: str) -> bool:
        """Return whether a server is this member's own."""
        return server in self._owned

    def may_act(self) -> bool:
        """Return whether this member may send anything to its servers now: its lease runs, and it is not gone."""
        return self._now() < self._valid_until and not self.lost.is_set()

    def serves(self) -> bool:
        """Return whether this member may get work: it may act, receives others' changes, and does not drain or end."""
        me = self._members.get(self.me)
        is_live = me is not None and me.term == self.membership.term and me.status is MemberStatus.LIVE
        return is_live and not self._is_ending and self.may_act() and self.lag.receives_changes()

    async def wait_for_time(self) -> None:
        """Return once the database's time is known, or this member is found to be gone."""
        while not self.time.is_known.is_set() and not self.lost.is_set():  # noqa: ASYNC110 - either, and soon
            await anyio.sleep(POLL_S)

    async def wait_until_may_act(self) -> None:
        """Return once this member may act. Raises UpstreamError (OWNER_LOST) once it is gone."""
        while not self.may_act():
            if self.lost.is_set():
                raise self._term.make_end_error()
            await anyio.sleep(POLL_S)

    def owner(self, server: str) -> Owner | None:
        """Return the other member that has a server; None if no member is known to have it, or it is not reachable."""
        member = self.view(server).holder(server)
        if member is None or member.name == self.me or not member.is_reachable:
            return None
        return Owner(member.name, member.term, member.forward)

    def is_free(self, server: str) -> bool:
        """Return whether it is certain that no member has a server."""
        return self.view(server).is_free(server)

    def others(self) -> list[Owner]:
        """Return all other members that take part and can be reached."""
        others = (each for each in self._members.values() if each.name != self.me)
        return [Owner(each.name, each.term, each.forward) for each in others if each.is_reachable]

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call the listener with the name of each server whose owner has changed. The listener must not block."""
        self._listeners.append(listener)

    def members(self) -> list[Member]:
        """Return all members as they were when last read, in order of their names."""
        return sorted(self._members.values(), key=lambda member: member.name)

    def lease(self, server: str) -> Lease | None:
        """Return a server's lease; None if it never had an owner."""
        return self._leases.record(server)

    def owned_count(self) -> int:
        """Return how many servers this member has; UPKEEP does not count."""
        return len(self._owned) - (UPKEEP in self._owned)

    def free_count(self) -> int:
        """Return how many servers nobody has, as of the last scan; UPKEEP does not count."""
        return len(self._free_since) - (UPKEEP in self._free_since)

    def remaining_s(self) -> float:
        """Return for how many seconds this member may act without another heartbeat; negative if it may not act."""
        return self._valid_until - self._now()

    def home(self, server: str) -> str:
        """Return the name of the only member that may have a server; "" if others may have it, too."""
        return self._servers.home(server)

    async def refresh_members(self) -> None:
        """Read the members, and measure how far this one is behind them. Raises StoreUnavailable."""
        self._members = {member.name: member for member in await self.membership.members()}
        self.lag.observe()

    async def set_status(self, member: Member, status: MemberStatus) -> bool:
        """Set a member's status, which the member acts on soon; return False if it is gone. Raises StoreUnavailable."""
        is_set = await self.membership.set_status(member, status)
        await self.refresh_members()
        self.scan_soon()
        return is_set

    async def expel(self, member: Member, on_done: Callable[[], None] = lambda: None) -> bool:
        """Declare a member gone if it is overdue; return whether it is gone. Raises StoreUnavailable.

        `on_done` is called if this call has declared the member gone, and no other member had before.
        """
        expulsion = await self.membership.expel(member)
        if expulsion is Expulsion.DONE:
            on_done()
        if expulsion:
            await self.refresh_members()
            self.scan_soon()
        return bool(expulsion)

    def scan_soon(self) -> None:
        """Have the members and leases scanned now, not only after the usual pause."""
        self._scan_due.set()

    async def move(self, server: str, to: str = "") -> None:
        """Hand over one of this member's servers, to the member `to` unless that is "", and wait until this has ended.

        It goes on if the caller is cancelled: else nobody would serve a server that is released but not given up.
        """
        if await self._moves.wait_for_end(server) or server not in self._owned or self.lost.is_set():
            return
        done = anyio.Event()
        self._tasks.start_soon(self._hand_over, server, to, done)
        await done.wait()

    async def _hand_over(self, server: str, to: str, done: anyio.Event) -> None:
        """Release a server here, then give up its lease, for the member `to` unless that is "". Sets `done` then."""

        async def release() -> None:
            await self._served.wait_until_settled()  # a takeover of the server may be under way
            await self._hooks.hand_over(server, self._drain_timeout_s)

        try:
            await self._moves.hand_over(server, lambda: self.owns(server), release, lambda: self._give_up(server, to))
        finally:
            done.set()

    async def drain(self) -> None:
        """Take over no more servers, and hand over as many as there is time for. Raises StoreUnavailable."""
        self._is_ending = True
        await self.membership.set_own_status(MemberStatus.DRAINING)
        self.scan_soon()
        with anyio.move_on_after(self._drain_timeout_s + GIVING_UP_S):
            async with anyio.create_task_group() as tasks:
                for server in list(self._owned):
                    tasks.start_soon(self.move, server)

    async def quit(self) -> None:
        """Declare this member gone, so that others take its servers at once; its own store then refuses commits."""
        self._term.is_quitting = True
        try:
            await self.membership.set_own_status(MemberStatus.GONE)
        except StoreUnavailable as exc:
            log.warning("the fleet was not told that this member has ended; it will see", error=str(exc))

    async def run(self) -> None:
        """Take over, serve and hand over servers until this member is found to be gone, or until cancelled."""
        self._is_running = True
        await self._term.attempt(self._renew_lease_once)  # now that `_is_running`, for the usual time only
        self._term.note_losses(self._note)
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._scan_until_cancelled)
            self._tasks.start_soon(self._served.run, self._term.attempt)
            await self.lost.wait()
            self._measures.count_ended_term()
            self._tasks.cancel_scope.cancel()

    async def send_beats(self) -> None:
        """Renew this member's lease, its right to act, at intervals until the member is found to be gone or quits.

        Start this as soon as the store is open: the first read of the store may take longer than a lease.
        """
        while not self.lost.is_set() and not self._term.is_quitting:
            started = self._now()
            could_not_act = not self.may_act()
            if await self._term.attempt(self._renew_lease_once):
                self._valid_until = started + self.membership.lease_ttl_s * (1 - MARGIN)
                if could_not_act:
                    log.warning("the database is back; this member acts again", member=self.me)
            elif not could_not_act and not self.may_act():
                log.error("the database is away; nothing is sent to servers until it is back", member=self.me)
            self._publish_readiness()
            pause_s = self.membership.lease_ttl_s / BEATS - (self._now() - started)
            await anyio.sleep(max(pause_s, self.membership.lease_ttl_s / SHORTEST_PAUSE_PARTS))

    async def _renew_lease_once(self) -> None:
        """Renew this member's lease once, and read the database's clock. Raises StoreUnavailable and Expelled."""
        for_s = self.membership.lease_ttl_s
        self.time.apply_reading(
            await self.membership.renew_lease(self._position(), for_s if self._is_running else max(for_s, STARTING_S))
        )
        self.lag.observe()

    async def _scan_until_cancelled(self) -> None:
        """Scan members and leases about every SCAN_S, and at once after `scan_soon`, until cancelled."""
        while True:
            await self._term.attempt(self._scan_fleet)
            with anyio.move_on_after(SCAN_S * random.uniform(0.8, 1.2)):  # noqa: S311 - spreads load, guards nothing
                await self._scan_due.wait()
            self._scan_due = anyio.Event()

    async def _scan_fleet(self) -> None:
        """Read the members; expel overdue ones, delete leases of removed servers, claim free ones, hand others over."""
        await self.refresh_members()
        for member in self.view().overdue_members():
            if await self.expel(member, partial(self._note, "ExpelMember", member.name)):
                log.warning("member declared gone: it was not heard of in time", member=member.name)
        self._note_free_servers()
        await self._drop_unwanted_servers()
        await self._claim_free_servers()
        await self._hand_over_surplus()
        self._ledger.health.publish_change()

    def ownable_names(self) -> set[str]:
        """Return the names of all that may have an owner: the servers, and UPKEEP."""
        return {UPKEEP, *self._servers.server_names()}

    def _takeover_delay_s(self, server: str) -> float | None:
        """Return for how many seconds this member lets others take a server first; None if it must not have it."""
        return 0.0 if server == UPKEEP else self._servers.takeover_delay_s(server)

    def view(self, only: str | None = None) -> MemberView:
        """Return what this member knows of all servers, or with `only` of that server alone, which is quicker."""
        leases: dict[str, Lease] = {}
        if only is None:
            leases = {lease.server: lease for lease in self._leases}
        elif (lease := self._leases.record(only)) is not None:
            leases = {only: lease}
        return MemberView(
            me=self.me,
            term=self.membership.term,
            store=self._ledger.store.id,
            members=self._members,
            leases=leases,
            free_since=self._free_since,
            now=self._now(),
        )

    def _note_free_servers(self) -> None:
        """Note which servers have no owner now, each with the time when this member first saw that."""
        now = self._now()
        free = self.view().free_servers(self.ownable_names())
        self._free_since = {server: self._free_since.get(server, now) for server in free}

    async def _claim_free_servers(self) -> None:
        """Commit leases of the free servers that this member should take now; none once `drain` has begun."""
        if self._is_ending:
            return
        async with anyio.create_task_group() as tasks:
            for server in self.view().servers_to_take(self.ownable_names(), self._takeover_delay_s):
                tasks.start_soon(self._claim_lease, server)

    def _servers_to_serve(self) -> set[str]:
        """Return the servers that are to be at work here: those of this member's leases that it is not handing over."""
        if self._is_ending:
            return set()
        return (self._owned & self.ownable_names()) - self._moves.servers

    async def _claim_lease(self, server: str) -> None:
        """Commit this member's lease of a server, unless another member was faster; a failure is only logged."""
        store, before = self._ledger.store.id, self._leases.record(server)
        lease = Lease(server=server, store=store, member=self.me, life=self.membership.term)
        free_since = self._free_since.get(server, self._now())
        if not self.is_free(server):  # another member has taken it since this member looked
            return
        try:
            await self._ledger.commit([self._leases.change(server, lease)])
        except WriteConflict:
            log.info("server taken by another member", server=server)
        except (HubError, StoreUnavailable) as exc:
            log.warning("a server was not taken; tried again", server=server, error=str(exc))
        else:
            self._measures.count_takeover(server, before, max(self._now() - free_since, 0.0))

    async def _hand_over_surplus(self) -> None:
        """Hand over one server if this member has more than its share, and may rebalance."""

        def can_move(server: str) -> bool:
            """Return whether a server may be handed over now: it is at work and idle, and not bound to this member."""
            if server == UPKEEP or self.home(server) or server in self._moves.servers:
                return False
            return server in self._served and self._recent_handovers.may_move(server) and self._servers.is_idle(server)

        if not self._rebalance or not self._recent_handovers.is_due():
            return
        if (handover := self.view().choose_handover(can_move)) is not None:
            server, to = handover
            self._recent_handovers.note_handover(server)
            log.info("server handed on: this member has more than its share", server=server, to=to)
            self._tasks.start_soon(self.move, server, to)

    async def _drop_unwanted_servers(self) -> None:
        """Delete the leases of servers that no longer exist; hand over the servers that this member is not to have."""
        names = self.ownable_names()
        for server in [lease.server for lease in self._leases if lease.server not in names]:
            is_to_delete = server in self._owned or (UPKEEP in self._owned and self.is_free(server))
            is_known_again = server in self.ownable_names()  # it may have been added meanwhile
            if is_to_delete and not is_known_again and server not in self._moves.servers:
                with suppress(WriteConflict):  # a server added again just now, and at work without a lease, is stopped
                    await self._ledger.commit([self._leases.change(server, None)])
        me = self._members.get(self.me)
        is_draining = me is not None and me.term == self.membership.term and me.status is MemberStatus.DRAINING
        for server in list(self._owned - self._moves.servers):
            if is_draining or (server != UPKEEP and self._servers.takeover_delay_s(server) is None):
                self._tasks.start_soon(self.move, server)

    async def _give_up(self, server: str, to: str) -> None:
        """Commit that a server is free, for the member `to` unless that is "". Raises WriteConflict, Unavailable."""
        if server not in self._owned:  # an earlier attempt was committed, and another member may have the server now
            return
        given_up = Lease(server=server, store=self._ledger.store.id, wish=to)
        await self._ledger.commit([self._leases.change(server, given_up)])

    def _follow_lease_change(self, before: Lease | None, after: Lease | None) -> None:
        """Note the new owner of a server, have the server started or stopped here, and notify the listeners."""
        lease = after or before
        assert lease is not None
        server = lease.server
        own_term = self._ledger.store.id, self.me, self.membership.term
        if after is not None and (after.store, after.member, after.life) == own_term:
            self._owned.add(server)
        else:
            self._owned.discard(server)
        self._served.compare_soon()
        if after is None or after.member == NOBODY:
            self._free_since.setdefault(server, self._now())
            self.scan_soon()
        else:
            self._free_since.pop(server, None)
        for listener in self._listeners:
            listener(server)
