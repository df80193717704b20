"""The hub: its rooms wired together, over a store and a connector."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio

from hubbubd.clock import Clock
from hubbubd.config import HubSettings, ServerConfig
from hubbubd.core.calls import Call
from hubbubd.core.inbox import Origin, PendingRequest
from hubbubd.core.server import ServerRecord
from hubbubd.core.tasks import Task
from hubbubd.errors import NotFound
from hubbubd.runtime.alarms import Alarms
from hubbubd.runtime.background import Background
from hubbubd.runtime.calls import Calls
from hubbubd.runtime.inbound import PlainRequests
from hubbubd.runtime.inbox import Inbox
from hubbubd.runtime.ledger import History, Ledger, Table
from hubbubd.runtime.rounds import Rounds
from hubbubd.runtime.servers import Rooms, Servers
from hubbubd.runtime.tasks import Tasks
from hubbubd.store import Store
from hubbubd.upstream.ports import Connector

SHUTDOWN_S = 15.0
"""How long connections may take to close when the hub stops; a stdio server gets about 5 s of it."""


PRUNE_S = 600.0
"""How often what has become too old is deleted."""


class Hub:
    """What the API is about: servers, inbox, calls, tasks."""

    def __init__(
        self, ledger: Ledger, clock: Clock, servers: Servers, inbox: Inbox, calls: Calls, tasks: Tasks
    ) -> None:
        self.servers = servers
        self.inbox = inbox
        self.calls = calls
        self.tasks = tasks
        self.clock = clock
        self.started_at = clock.now()
        self.store = ledger.store
        self._ledger = ledger

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        store: Store,
        connector: Connector,
        configured: Mapping[str, ServerConfig],
        settings: HubSettings,
    ) -> AsyncGenerator["Hub"]:
        """A running hub. It reconnects to what was wanted; leaving the block closes all connections, not the store."""
        clock = Clock(anyio.current_time)
        ledger = Ledger(store, max_watchers=settings.max_watchers)
        server_table = Table("server", ServerRecord)
        request_table = Table("request", PendingRequest)
        call_table = Table("call", Call)
        task_table = Table("task", Task)
        await ledger.load(server_table, request_table, call_table, task_table)
        async with Background.open() as background:
            alarms = Alarms(clock, background)

            def timeout_message(server: str) -> str:
                try:
                    return servers.get(server).config.timeout_message
                except NotFound:
                    return "Nobody answered in time"

            def notify(server: str, method: str, params: dict[str, Any]) -> None:
                servers.notify(server, method, params)

            inbox = Inbox(
                ledger,
                request_table,
                clock,
                alarms,
                timeout_message,
                max_open_per_server=settings.open_requests_per_server,
                history=History(settings.request_history_count, settings.request_history_age_s),
            )
            inbox.register(Origin.PLAIN, PlainRequests())
            rounds = Rounds(inbox, call_table, clock)
            calls = Calls(
                ledger,
                call_table,
                clock,
                background,
                rounds,
                history=History(settings.call_history_count, settings.call_history_age_s),
            )
            tasks = Tasks(
                ledger,
                task_table,
                inbox,
                clock,
                alarms,
                background,
                notify,
                max_per_server=settings.receiver_tasks_per_server,
            )
            rooms = Rooms(
                ledger=ledger,
                clock=clock,
                alarms=alarms,
                background=background,
                connector=connector,
                inbox=inbox,
                calls=calls,
                calls_table=call_table,
                tasks=tasks,
            )
            servers = Servers(rooms, server_table, settings)
            hub = cls(ledger, clock, servers, inbox, calls, tasks)
            background.start_soon(ledger.run)
            background.start_soon(hub._keep_history_short)
            await hub._take_up()
            await servers.start(configured)
            try:
                yield hub
            finally:
                with anyio.CancelScope(shield=True):
                    await hub._wind_down(alarms)

    @property
    def healthy(self) -> bool:
        """Whether the store takes what the hub writes."""
        return self._ledger.healthy

    def watchers(self) -> int:
        """How many watches are open."""
        return self._ledger.door.count

    def end_watches(self) -> None:
        """Ends all watches, each with its last token; new ones end at once."""
        self._ledger.close_feeds()

    async def _take_up(self) -> None:
        """Goes on from what the store remembers."""
        self.calls.start_up()
        self.tasks.start()
        self.inbox.start()
        await self.inbox.withdraw_all(
            {Origin.PLAIN, Origin.ROUNDS}, "the hub was restarted, and the connection it came on is gone"
        )

    async def _keep_history_short(self) -> None:
        while True:
            self.calls.prune()
            self.inbox.prune()
            await anyio.sleep(PRUNE_S)

    async def _wind_down(self, alarms: Alarms) -> None:
        self.end_watches()
        with anyio.move_on_after(SHUTDOWN_S):
            await self.servers.close()
        alarms.clear()
        await self._ledger.flush()
