"""The coding agents behind the hub and their sessions, kept up to date by the resources of their servers."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup

from hubbub_client.data.catalog import CatalogList
from hubbub_client.data.coding_sessions import SESSIONS, CodingSession, read_session, read_sessions, state_uri
from hubbub_client.data.records import ResourceUpdate
from hubbub_client.data.watch_events import Upsert
from hubbub_client.errors import HubbubError
from hubbub_client.hub import Hub

RETRY_S: Final = 2.0
"""Pause after the hub refused a watch, seconds."""

MAX_AGENTS: Final = 100


@dataclass(frozen=True, slots=True)
class ServerSessions:
    """The sessions of one agent; `problem` says why they may be outdated, `is_read` whether they were read at all."""

    sessions: tuple[CodingSession, ...] = ()
    problem: str = ""
    is_read: bool = False


class SessionFeed:
    """The sessions of all coding agents, by server. `on_change` is called after each change."""

    def __init__(self, hub: Hub, on_change: Callable[[], None]) -> None:
        self.agents: dict[str, ServerSessions] = {}
        # Why the list of agents could not be read, and whether it has been read.
        self.problem = ""
        self.is_read = False
        self._hub = hub
        self._on_change = on_change
        # The scope of the task that follows an agent, by the agent's server.
        self._scopes: dict[str, CancelScope] = {}

    async def follow(self) -> None:
        """Keep the sessions up to date, forever."""
        while True:
            try:
                async with anyio.create_task_group() as group:
                    await self._follow_catalogs(group)
            except* HubbubError as errors:
                self._reset(_first_message(errors))
            await anyio.sleep(RETRY_S)

    async def _follow_catalogs(self, group: TaskGroup) -> None:
        """Read the list of agents, and again whenever a catalog changes. Raises HubbubError."""
        async with aclosing(self._hub.catalog.watch(kinds=["resource"])) as events:
            await self._update_agents(group)
            async for event in events:
                match event:
                    case Upsert(record=CatalogList()) if self.is_read:
                        await self._update_agents(group)
                    case _:
                        pass

    async def _update_agents(self, group: TaskGroup) -> None:
        """Read which servers are agents; follow new ones, and drop those that are no more. Raises HubbubError."""
        entries = await self._hub.catalog.resources()
        agent_servers = [entry.server for entry in entries if entry.uri == SESSIONS][:MAX_AGENTS]
        for server in self._scopes.keys() - set(agent_servers):
            self._scopes.pop(server).cancel()
            self.agents.pop(server, None)
        for server in agent_servers:
            if server not in self._scopes:
                self.agents[server] = ServerSessions()
                scope = self._scopes[server] = CancelScope()
                group.start_soon(self._follow_agent, server, scope)
        self.problem, self.is_read = "", True
        self._on_change()

    async def _follow_agent(self, server: str, scope: CancelScope) -> None:
        """Keep the sessions of one agent up to date, until its scope is cancelled."""
        with scope:
            while True:
                try:
                    async with aclosing(self._hub.subscribe(server, SESSIONS)) as updates:
                        async for update in updates:
                            self._set_agent(server, _read_update(server, update, self.agents[server]))
                    problem = ""
                except HubbubError as error:
                    problem = error.message
                self._set_agent(server, ServerSessions(self.agents[server].sessions, problem, is_read=True))
                await anyio.sleep(RETRY_S)

    def _set_agent(self, server: str, sessions: ServerSessions) -> None:
        """Store the sessions of an agent, and report the change."""
        self.agents[server] = sessions
        self._on_change()

    def _reset(self, problem: str) -> None:
        """Forget all agents, after following them has failed for the reason in `problem`."""
        self._scopes.clear()  # the task group of `follow` has ended what they would cancel
        self.agents.clear()
        self.problem, self.is_read = problem, False
        self._on_change()


async def follow_session(hub: Hub, server: str, session: str) -> AsyncGenerator[CodingSession | str, None]:
    """Yield a session now and after each change, without end. If it cannot be read, yield the reason in words."""
    while True:
        try:
            async with aclosing(hub.subscribe(server, state_uri(session))) as updates:
                async for update in updates:
                    if update.error is not None:
                        yield update.error.message or update.error.code
                        continue
                    try:
                        yield read_session(server, update.result)
                    except ValueError as error:
                        yield str(error)
        except HubbubError as error:
            yield error.message
        await anyio.sleep(RETRY_S)


def _read_update(server: str, update: ResourceUpdate, previous: ServerSessions) -> ServerSessions:
    """Return the sessions of an agent after an update; if it cannot be read, the previous sessions and the reason."""
    if update.error is not None:
        return ServerSessions(previous.sessions, update.error.message or update.error.code, is_read=True)
    try:
        return ServerSessions(read_sessions(server, update.result), is_read=True)
    except ValueError as error:
        return ServerSessions(previous.sessions, str(error), is_read=True)


def _first_message(errors: BaseExceptionGroup[HubbubError]) -> str:
    """Return the message of the first error in a group."""
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return str(first)
