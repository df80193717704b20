"""AdminService."""

import os
from collections import Counter
from collections.abc import Iterable

from hubbub.v1 import admin_pb2 as pb
from hubbubd import __version__
from hubbubd.rpc import convert
from hubbubd.runtime.filters import CallFilter, RequestFilter, TaskFilter
from hubbubd.runtime.hub import Hub


class AdminService:
    """The hub itself."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def get_status(self, _request: pb.GetStatusRequest) -> pb.GetStatusResponse:
        """The hub in numbers."""
        hub = self._hub
        return pb.GetStatusResponse(
            version=__version__,
            pid=os.getpid(),
            started_at=convert.timestamp(hub.started_at),
            servers=_counted(server.connection.state for server in hub.servers.all()),
            requests=_counted(request.state for request in hub.inbox.select(RequestFilter())),
            calls=_counted(call.state for call in hub.calls.select(CallFilter())),
            tasks=_counted(task.status for task in hub.tasks.select(TaskFilter())),
            watchers=hub.watchers(),
            store=convert.store(await hub.store.stats()),
        )


def _counted(states: Iterable[str]) -> list[pb.StateCount]:
    return [pb.StateCount(state=str(state), count=count) for state, count in sorted(Counter(states).items())]
