"""`subscriptions/listen` (2026-07-28): a host is notified of changes for as long as its request is open."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast

from hubbubd import payload
from hubbubd.core.access import Principal
from hubbubd.core.hosts.host_sessions import MAX_WATCHED
from hubbubd.core.jsonrpc import INVALID_PARAMS
from hubbubd.core.servers.catalog import SOURCES
from hubbubd.downstream.hosts.host import HostRequest
from hubbubd.downstream.notifications.changes import ListChanges, WatchedResources
from hubbubd.downstream.notifications.session_notifications import announces_changes
from hubbubd.downstream.protocol import messages
from hubbubd.downstream.protocol.messages import Refusal, check_length
from hubbubd.downstream.tasks.task_extension import TaskExtension
from hubbubd.downstream.views.view import EndpointView
from hubbubd.runtime.hub import Hub

SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
"""The member of `_meta` that names the request, in all its notifications."""

ACCEPT_S: Final = 2.0
"""Seconds that servers have to accept subscriptions to resources before the acknowledgement is sent."""


async def listen(hub: Hub, view: EndpointView, tasks: TaskExtension, request: HostRequest) -> bytes:
    """Notify a host of the changes that it subscribes to, until its request or the hub ends.

    Returns the result of the request, at its end. Raises Refusal and Unavailable.
    """
    flags, uris = _parse_filter(request.params.get("notifications"))
    capabilities = view.introduction(request.host.principal).capabilities
    flags = {flag for flag in flags if announces_changes(capabilities, _CAPABILITIES[flag])}
    stamp = {"_meta": {SUBSCRIPTION: request.id}}
    not_yet_sent: list[bytes] | None = []

    def notify(method: str, about: Mapping[str, Any]) -> None:
        """Send a notification of this subscription, but not before the acknowledgement."""
        message = messages.make_notification(method, {**about, **stamp})
        request.send(message) if not_yet_sent is None else not_yet_sent.append(message)

    def get_principal() -> Principal:
        """Return the host's principal as it is now."""
        return request.host.principal

    methods = {_METHODS[flag] for flag in flags}
    changes = ListChanges(
        hub, view, get_principal, methods, lambda method: notify(method, {}), apps=request.host.shows_apps
    )
    resources = WatchedResources(
        hub, view, get_principal, lambda uri: notify("notifications/resources/updated", {"uri": uri})
    )
    try:
        async with tasks.notify_of_tasks(request, lambda task: notify("notifications/tasks", task)) as ids:
            honoured: dict[str, Any] = dict.fromkeys(sorted(flags), True)
            if accepted := await _subscribe(resources, uris):
                honoured["resourceSubscriptions"] = accepted
            if ids:
                honoured["taskIds"] = ids
            queued, not_yet_sent = not_yet_sent, None
            request.send(
                messages.make_notification(
                    "notifications/subscriptions/acknowledged", {"notifications": honoured, **stamp}
                )
            )
            for message in queued:
                request.send(message)
            await (request.leaving or hub.calls.stopped).wait()
    finally:
        changes.close()
        resources.close()
    return payload.dumps({"resultType": "complete", **stamp})


_METHODS: Final = {source.listen_flag: source.change_notification for source in SOURCES.values()}
_CAPABILITIES: Final = {source.listen_flag: source.capability for source in SOURCES.values()}


def _parse_filter(value: object) -> tuple[set[str], list[str]]:
    """Return the flags that a filter sets and the URIs of its resources, each once. Raises Refusal."""
    if not isinstance(value, dict):
        raise Refusal(INVALID_PARAMS, "params.notifications must be an object")
    members = cast("dict[str, Any]", value)
    listed: object = members.get("resourceSubscriptions") or []
    uris = cast("list[object]", listed) if isinstance(listed, list) else [None]  # None is no URI, and refused below
    if len(uris) > MAX_WATCHED:
        raise Refusal(INVALID_PARAMS, f"params.notifications.resourceSubscriptions may have {MAX_WATCHED} entries")
    valid_uris = [uri for uri in uris if isinstance(uri, str)]
    if len(valid_uris) < len(uris):
        raise Refusal(INVALID_PARAMS, "params.notifications.resourceSubscriptions must be a list of URIs")
    for uri in valid_uris:
        check_length(uri, "each of params.notifications.resourceSubscriptions")
    return {flag for flag in _METHODS if members.get(flag) is True}, list(dict.fromkeys(valid_uris))


async def _subscribe(resources: WatchedResources, uris: list[str]) -> list[str]:
    """Subscribe to resources; return the URIs of those that are not refused within ACCEPT_S seconds.

    A subscription without an answer by then counts as accepted; its server may still refuse it later.
    """
    subscriptions: dict[str, asyncio.Future[None]] = {}
    for uri in uris:
        with suppress(Refusal):
            subscriptions[uri] = resources.start_watch(uri)
    if subscriptions:
        await asyncio.wait(subscriptions.values(), timeout=ACCEPT_S)
    return [uri for uri, each in subscriptions.items() if not each.done() or each.exception() is None]
