"""Which server a request is about."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from hubbubd.core.access import Permission
from hubbubd.errors import NotFound
from hubbubd.rpc.auth import access
from hubbubd.rpc.context import principal
from hubbubd.runtime.hub import Hub

Find = Callable[[Hub, Any], str]
"""Returns the server's name; empty if the request names none, or a record that its caller may not see."""


def find_server(hub: Hub, path: str, request: Any) -> str | None:
    """Return the server that a request is about, if there is one, and its caller may know of it.

    All others are refused where they arrive, and their callers learn nothing of what other members have.
    """
    server = _FINDERS[path](hub, request)
    return server if is_known_server(hub, server) and principal().may(Permission.BROWSE, server) else None


def is_known_server(hub: Hub, server: str) -> bool:
    """Return whether there is a server of this name, whichever member has it."""
    whose = hub.ownership
    return whose.owns(server) or whose.owner(server) is not None or hub.servers.find(server) is not None


def _server_field(_hub: Hub, request: Any) -> str:
    """Return the request's field `server`."""
    return request.server


def _name_field(_hub: Hub, request: Any) -> str:
    """Return the request's field `name`, which names a server."""
    return request.name


def _call_spec_server(_hub: Hub, request: Any) -> str:
    """Return the server of the call's spec."""
    return request.spec.server


def _server_spec_name(_hub: Hub, request: Any) -> str:
    """Return the name in the server's spec."""
    return request.spec.name


def _filter_server(_hub: Hub, request: Any) -> str:
    """Return the server of the request's filter."""
    return request.filter.server


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


_FINDERS: Mapping[str, Find] = MappingProxyType(
    {
        "/hubbub.v1.CallService/CallMethod": _call_spec_server,
        "/hubbub.v1.CallService/StartCall": _call_spec_server,
        "/hubbub.v1.CallService/CancelCall": _server_of_call,
        "/hubbub.v1.CallService/GetQueue": _server_field,
        "/hubbub.v1.CallService/ClearQueue": _server_field,
        "/hubbub.v1.CatalogService/RefreshCatalog": _server_field,
        "/hubbub.v1.EventService/TailLogs": _server_field,
        "/hubbub.v1.EventService/WatchResource": _server_field,
        "/hubbub.v1.EventService/WatchEvents": _filter_server,
        "/hubbub.v1.FleetService/MoveServer": _server_field,
        "/hubbub.v1.ServerService/UpdateServer": _server_spec_name,
        "/hubbub.v1.ServerService/RemoveServer": _name_field,
        "/hubbub.v1.ServerService/ConnectServer": _name_field,
        "/hubbub.v1.ServerService/DisconnectServer": _name_field,
        "/hubbub.v1.ServerService/LogOutServer": _name_field,
        "/hubbub.v1.ServerService/SetRoots": _name_field,
        "/hubbub.v1.TaskService/GetTaskResult": _server_of_task,
        "/hubbub.v1.TaskService/CancelTask": _server_of_task,
    }
)
