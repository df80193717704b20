"""What the hub keeps for one server while it runs: its record, its queue, its connection and its catalog."""

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from hubbubd.config import Confinement
from hubbubd.core.connection import State
from hubbubd.core.server import ServerRecord
from hubbubd.errors import Fault
from hubbubd.runtime.calls import Lane
from hubbubd.runtime.catalog import ServerCatalog
from hubbubd.runtime.inbox import ReceiverTasks
from hubbubd.runtime.servers.connection import ConnectionShell
from hubbubd.runtime.servers.inbound import ServerInbound
from hubbubd.runtime.servers.rooms import Rooms


@dataclass(slots=True)
class Kept:
    """One server."""

    record: ServerRecord
    lane: Lane
    shell: ConnectionShell
    catalog: ServerCatalog
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def run(self) -> None:
        """Keeps the connection, until the server is dropped."""
        with self.scope:
            await self.shell.run()

    def adopt(self, rooms: Rooms, record: ServerRecord) -> None:
        """Takes over options of the hub's side; the connection, the calls and the questions stay as they are.

        A server that has no connection but should have one is tried at once: it may be what the change is for.
        """
        self.record = record
        self.lane.adopt(record.effective)
        self.shell.adopt(record.config)
        rooms.catalog.adopt(record.config)
        if record.wanted and self.shell.state in (State.DISCONNECTED, State.ERROR):
            self.shell.connect()

    async def let_go(self, rooms: Rooms, fault: Fault) -> Lane:
        """Ends the connection, for another one to the same server; returns its queue.

        What is on the wire fails with the connection; all else waits in the queue, for its turn, people or a task.
        """
        await self.shell.hand_over(fault)
        self.scope.cancel()
        rooms.catalog.close(self.record.name)
        return self.lane


def keep(
    rooms: Rooms,
    record: ServerRecord,
    confinement: Confinement | None,
    changed: Callable[[], None],
    lane: Lane | None = None,
) -> Kept:
    """Makes the parts of a server; `lane` is its queue where it has one already."""
    config = record.config
    if lane is None:
        lane = rooms.calls.open_lane(record.effective)
    else:
        lane.adopt(record.effective)
    receiver = ReceiverTasks(lane, rooms.tasks, rooms.inbox, rooms.clock)
    catalog = rooms.catalog.open(config)
    rooms.events.open(config.name)
    inbound = ServerInbound(
        config.name,
        lane,
        rooms.inbox,
        rooms.tasks,
        rooms.client_tasks,
        receiver,
        rooms.clock,
        rooms.background,
        rooms.calls.logged,
        rooms.events,
        rooms.subscriptions,
        catalog,
        rooms.authorizations,
        rooms.audit,
    )
    shell = ConnectionShell(
        config, rooms.connector, inbound, lane, rooms.clock, rooms.measures, changed, confinement, rooms.turns
    )
    return Kept(record, lane, shell, catalog)
