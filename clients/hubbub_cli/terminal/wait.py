"""Waiting until a pending request is closed, or servers are connected."""

import contextlib
from collections.abc import Sequence
from typing import get_args

import anyio

from hubbub_cli.output.printer import note
from hubbub_client.data.records import PendingRequest, RequestKind, Server
from hubbub_client.data.watch_events import Removed, Reset, Synced, Upsert
from hubbub_client.errors import HubbubError, Unavailable
from hubbub_client.hub import Hub
from hubbub_frontend.display.records import describe_disconnection, describe_fault

SNAPSHOT_LIMIT_S = 30.0
"""Longest wait for the hub's snapshot of servers, before the timeout begins; seconds."""


async def wait_until_closed(hub: Hub, request: PendingRequest, *, answered: bool = True) -> PendingRequest | None:
    """Wait until a pending request is no longer open, and return it; None if the hub has it no more.

    With `answered` false, an answer does not end the wait: only an end without an answer, or the removal, does.
    """
    is_listed = False
    # A newer hub may name a kind that no filter of ours can.
    kinds: list[RequestKind] = [kind for kind in get_args(RequestKind) if kind == request.kind]
    watch = hub.inbox.watch(server=request.server, kinds=kinds, call_id=request.call_id)
    async with contextlib.aclosing(watch) as events:
        async for event in events:
            match event:
                case Upsert(record=current) if current.id == request.id:
                    is_listed = True
                    if current.state != "open" and (answered or current.state != "answered"):
                        return current
                case Removed(id=request.id):
                    return None
                case Reset():
                    is_listed = False
                case Synced() if not is_listed:  # all that the hub has was listed before
                    return None
                case _:
                    pass
    return None


class ServerWait:
    """Waits for servers to be connected, and says meanwhile what it waits for and what is in the way.

    `names` are the servers that are waited for; None for all that the hub is to keep connected. The time begins when
    the hub has listed the servers, so that a timeout of 0 still learns their states.
    """

    def __init__(self, hub: Hub, names: Sequence[str] | None = None) -> None:
        self._hub = hub
        self._names = names
        self.servers: dict[str, Server] = {}
        """The servers that were seen, by name, each as it was last."""

        # Whether the hub has listed the servers; those that are still to be connected; and by server the last problem
        # that was printed.
        self._synced = False
        self._missing: dict[str, Server] = {}
        self._printed_problems: dict[str, str] = {}

    async def wait_until_connected(self, timeout_s: float) -> list[Server]:
        """Wait until the servers are connected, or cannot be without a person; return those that are not connected.

        Raises HubbubError.
        """
        from hubbub_cli.output.server_news import print_while_waiting

        failure: HubbubError | None = None  # raised below: a task group would wrap it in an exception group
        async with anyio.create_task_group() as group:
            group.start_soon(print_while_waiting, self._describe_missing)
            with anyio.move_on_after(timeout_s + SNAPSHOT_LIMIT_S) as wait:
                try:
                    await self._follow_servers(wait, timeout_s)
                except HubbubError as error:
                    failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if not self._synced:
            raise Unavailable("the hub did not say how its servers are", reason="HUB_SILENT")
        return [self._missing[name] for name in sorted(self._missing)]

    async def _follow_servers(self, wait: anyio.CancelScope, timeout_s: float) -> None:
        """Watch the servers until each is connected, or not tried again without a person.

        When the hub has listed the servers, the deadline of `wait` is set: `timeout_s` from then.
        """
        async with contextlib.aclosing(self._hub.servers.watch(self._names or ())) as events:
            async for event in events:
                match event:
                    case Upsert(record=server):
                        self._update_server(server)
                    case Removed(id=name):
                        self._missing.pop(name, None)
                    case Reset():
                        self._missing.clear()
                        self._synced = False
                    case Synced():
                        self._synced = True
                        wait.deadline = min(wait.deadline, anyio.current_time() + timeout_s)
                    case _:
                        pass
                if self._synced and all(map(is_hopeless, self._missing.values())):
                    return

    def _update_server(self, server: Server) -> None:
        """Note whether a server has still to be connected, and print its problem if that is new."""
        self.servers[server.name] = server
        if server.desired_state != "connected" or server.state == "connected":
            self._missing.pop(server.name, None)
            return
        self._missing[server.name] = server
        if server.error is not None and self._printed_problems.get(server.name) != (
            problem := describe_fault(server.error)
        ):
            self._printed_problems[server.name] = problem
            note(describe_disconnection(server))

    def _describe_missing(self) -> str:
        """Return which servers are waited for, in words; empty if none is."""
        return f"waiting for {', '.join(sorted(self._missing))}" if self._missing else ""


def is_hopeless(server: Server) -> bool:
    """Return whether the hub does not try a server again until a person has done something."""
    return server.gave_up or (server.error is not None and not server.error.retryable)
