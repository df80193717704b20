"""What a program sees of the records that a watch tells of, and whether each telling is news to it."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from google.protobuf.message import Message

from hubbub.v1 import inbox_pb2
from hubbubd.core.access import EVERYTHING
from hubbubd.core.calls.call_states import Call
from hubbubd.core.filters import CallFilter, CatalogFilter, RequestFilter, ServerFilter, TaskFilter
from hubbubd.core.inbox.request_states import PendingRequest
from hubbubd.core.servers.catalog import CatalogList
from hubbubd.core.servers.server_record import ServerRecord
from hubbubd.core.tasks import Task
from hubbubd.rpc.messages import api_records
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.records import EventKind, WatchEvent

Watch = Callable[[Hub], AsyncIterator[WatchEvent[Any]]]

WATCHES: dict[str, Watch] = {
    "WatchServers": lambda hub: hub.servers.watch(ServerFilter()),
    "WatchCalls": lambda hub: hub.calls.watch(CallFilter()),
    "WatchPendingRequests": lambda hub: hub.inbox.watch(RequestFilter()),
    "WatchTasks": lambda hub: hub.tasks.watch(TaskFilter()),
    "WatchCatalogLists": lambda hub: hub.catalog.watch(CatalogFilter()),
}

SHOWN: dict[type[Any], Callable[[Any], Message]] = {
    ServerRecord: lambda record: api_records.server(record, EVERYTHING),
    Call: lambda record: api_records.call(record, EVERYTHING),
    PendingRequest: api_records.request,
    Task: api_records.task,
    CatalogList: lambda record: api_records.catalog_list(record, EVERYTHING),
}


def visible(record: Any) -> Message:
    """What there is of a record to act on: all that the API shows, but for who was shown it."""
    message = SHOWN[type(record)](record)
    if isinstance(message, inbox_pb2.PendingRequest):
        told = [moment for moment in message.events if moment.type != inbox_pb2.PendingRequest.EVENT_TYPE_SHOWN]
        del message.events[:]
        message.events.extend(told)
    return message


class News:
    """What one watch has told of each record last; `repeated` has what it told twice."""

    def __init__(self) -> None:
        self.repeated: list[Message] = []
        self.told = 0
        self._last: dict[str, Message] = {}

    def hear(self, event: WatchEvent[Any]) -> None:
        """Takes an event in."""
        match event.kind:
            case EventKind.UPSERT:
                message = visible(event.record)
                self.told += 1
                if self._last.get(event.id) == message:
                    self.repeated.append(message)
                self._last[event.id] = message
            case EventKind.REMOVED:
                self._last.pop(event.id, None)
            case EventKind.RESET:
                self._last.clear()
            case _:
                pass
