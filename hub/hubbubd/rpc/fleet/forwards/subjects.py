"""Finds the server that a request is about."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from hubbubd.core.access import Permission
from hubbubd.errors import NotFound
from hubbubd.rpc.auth import access
from hubbubd.rpc.context import principal
from hubbubd.runtime.hub import Hub

FindServer = Callable[[Hub, Any], str]
"""Returns the server's name; empty if the request names none, or a record that its caller may not see."""


def find_server(hub: Hub, path: str, request: Any) -> str | None:
    """Return the server that a request is about; None if there is none, or its caller may not know of it.

    A request without a server is not forwarded: the member that received it refuses it, so that its caller learns
    nothing about servers of other members.
    """
    server = _FINDERS[path](hub, request)
    return server if is_known_server(hub, server) and principal().may(Permission.BROWSE, server) else None


def is_known_server(hub: Hub, server: str) -> bool:
    """Return whether there is a server of this name, whichever member has it."""
    ownership = hub.ownership
    return ownership.owns(server) or ownership.owner(server) is not None or hub.servers.find(server) is not None


def _server_of_call(hub: Hub, request: Any) -> str:
    """Return the server of the call with the request's id; empty if its caller may not see the call."""
    try:
        call = hub.calls.get(request.id)
    except NotFound:
        return ""
    return call.server if access.visible_scope().has_call(call) else ""


def _server_of_task(hub: Hub, request: Any) -> str:
    """Return the server of the task with the request's id; empty if its caller may not see the task."""
    try:
        task = hub.tasks.get(request.id)
    except NotFound:
        return ""
    return task.server if access.visible_scope().has_task(task) else ""


def _find_by_field(path: str) -> FindServer:
    """Return a finder for requests that have the server's name in the field at this dotted path."""
    read = attrgetter(path)
    return lambda _hub, request: read(request)


_FINDERS: Mapping[str, FindServer] = MappingProxyType(
    {
        "/hubbub.v1.CallService/CallMethod": _find_by_field("spec.server"),
        "/hubbub.v1.CallService/StartCall": _find_by_field("spec.server"),
        "/hubbub.v1.CallService/CancelCall": _server_of_call,
        "/hubbub.v1.CallService/GetQueue": _find_by_field("server"),
        "/hubbub.v1.CallService/ClearQueue": _find_by_field("server"),
        "/hubbub.v1.CatalogService/RefreshCatalog": _find_by_field("server"),
        "/hubbub.v1.EventService/TailLogs": _find_by_field("server"),
        "/hubbub.v1.EventService/WatchResource": _find_by_field("server"),
        "/hubbub.v1.EventService/WatchEvents": _find_by_field("filter.server"),
        "/hubbub.v1.FleetService/MoveServer": _find_by_field("server"),
        "/hubbub.v1.ServerService/UpdateServer": _find_by_field("spec.name"),
        "/hubbub.v1.ServerService/RemoveServer": _find_by_field("name"),
        "/hubbub.v1.ServerService/ConnectServer": _find_by_field("name"),
        "/hubbub.v1.ServerService/DisconnectServer": _find_by_field("name"),
        "/hubbub.v1.ServerService/LogOutServer": _find_by_field("name"),
        "/hubbub.v1.ServerService/SetRoots": _find_by_field("name"),
        "/hubbub.v1.TaskService/GetTaskResult": _server_of_task,
        "/hubbub.v1.TaskService/CancelTask": _server_of_task,
    }
)
