"""Completion for shells: names and ids that the hub knows; without a hub nothing, and quickly."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer

from hubbub_client.payload import as_object

if TYPE_CHECKING:
    from hubbub_client.transport.discovery import HubAddress

LIMIT_S = 2.0
"""Time limit of a completion, seconds."""
# Names in a page, and pages of the catalog of one server.
MOST, MOST_PAGES = 200, 50
# Shells insert a suggestion as it is, and one shell evaluates it first. So names of servers are offered only if no
# character of them means anything to a shell.
PLAIN = re.compile(r"[\w./:@%+,][\w./:@%+,-]*", re.ASCII)


def servers(context: typer.Context, incomplete: str) -> list[str]:
    """Complete names of servers."""
    return _listed(context, incomplete, "server", "ServerService/ListServers", lambda it: _names(it.servers))


def members(context: typer.Context, incomplete: str) -> list[str]:
    """Complete names of members of the fleet."""
    return _listed(context, incomplete, "fleet", "FleetService/GetFleet", lambda it: _names(it.members))


def requests(context: typer.Context, incomplete: str) -> list[str]:
    """Complete ids of open pending requests."""
    return _open(context, incomplete)


def pages(context: typer.Context, incomplete: str) -> list[str]:
    """Complete ids of open pending requests with a page to visit."""
    return _open(context, incomplete, kinds=["PENDING_REQUEST_KIND_ELICITATION_URL"])


def _open(context: typer.Context, incomplete: str, **more: list[str]) -> list[str]:
    condition = {"states": ["PENDING_REQUEST_STATE_OPEN"], **more}
    rpc = "InboxService/ListPendingRequests"
    return _listed(context, incomplete, "inbox", rpc, lambda it: _ids(it.pending_requests), condition)


def tokens(context: typer.Context, incomplete: str) -> list[str]:
    """Complete names of tokens."""
    return _listed(context, incomplete, "admin", "AdminService/ListTokens", lambda it: _names(it.tokens))


def calls(context: typer.Context, incomplete: str) -> list[str]:
    """Complete ids of the newest calls."""
    return _listed(context, incomplete, "call", "CallService/ListCalls", lambda it: _ids(it.calls))


def tasks(context: typer.Context, incomplete: str) -> list[str]:
    """Complete ids of the newest tasks."""
    return _listed(context, incomplete, "task", "TaskService/ListTasks", lambda it: _ids(it.tasks))


def tools(context: typer.Context, incomplete: str) -> list[str]:
    """Complete tools of the server that the command names."""
    return _of_catalog(context, incomplete, "tool", "name")


def prompts(context: typer.Context, incomplete: str) -> list[str]:
    """Complete prompts of that server."""
    return _of_catalog(context, incomplete, "prompt", "name")


def resources(context: typer.Context, incomplete: str) -> list[str]:
    """Complete addresses of resources of that server."""
    return _of_catalog(context, incomplete, "resource", "uri")


def entries(context: typer.Context, incomplete: str) -> list[str]:
    """Complete what that server offers, of the kind that the command names."""
    kind: str = context.params.get("kind") or "tool"
    return _of_catalog(context, incomplete, kind, {"resource": "uri", "template": "uriTemplate"}.get(kind, "name"))


def _of_catalog(context: typer.Context, incomplete: str, kind: str, key: str) -> list[str]:
    server: str | None = context.params.get("server")
    if not server:
        return []
    condition = {"server": server, "kinds": [f"CATALOG_KIND_{kind.upper()}"]}
    rpc = "CatalogService/ListCatalogEntries"

    def names(response: Any) -> list[str]:
        from hubbub_client.data.conversion import document  # imported late, with gRPC

        return [str(as_object(document(each.object)).get(key) or "") for each in response.entries]

    return _listed(context, incomplete, "catalog", rpc, names, condition, most_pages=MOST_PAGES)


def _names(records: Iterable[Any]) -> list[str]:
    return [each.name for each in records]


def _ids(records: Iterable[Any]) -> list[str]:
    return [each.id for each in records]


def _listed(
    context: typer.Context,
    incomplete: str,
    module: str,
    rpc: str,
    names: Callable[[Any], list[str]],
    condition: Mapping[str, Any] | None = None,
    most_pages: int = 1,
) -> list[str]:
    """Return what fits of the names in a list; `module` has its messages. Whatever goes wrong, nothing fits."""
    from hubbub_client.transport.discovery import Where, discover_all

    given: dict[str, Any] = context.find_root().params
    messages = import_module(f"hubbub.v1.{module}_pb2")
    method = rpc.partition("/")[2]
    found: list[str] = []
    until = time.monotonic() + LIMIT_S
    try:
        endpoints = deque(discover_all(Where(*(given.get(name) for name in Where._fields))))
        kind = getattr(messages, f"{method}Request")
        paged = "page_token" in kind.DESCRIPTOR.fields_by_name
        request = kind(filter=condition or {}, page_size=MOST) if paged else kind()
        for _ in range(most_pages):
            answer = _answered(endpoints, f"hubbub.v1.{rpc}", request.SerializeToString(), until)
            response = getattr(messages, f"{method}Response").FromString(answer)
            found += names(response)
            if not paged:
                break
            request.page_token = response.next_page_token
            if not request.page_token:
                break
    except Exception:  # noqa: BLE001 - a shell that completes has no place for an error
        return []
    return [word for word in dict.fromkeys(found) if word.startswith(incomplete) and PLAIN.fullmatch(word)]


def _answered(endpoints: "deque[HubAddress]", rpc: str, request: bytes, until: float) -> bytes:
    """Return the response of the first endpoint that answers, and forget those before it. Raises grpc.RpcError."""
    from grpc import RpcError

    while len(endpoints) > 1:
        try:
            return _asked(endpoints[0], rpc, request, (until - time.monotonic()) / len(endpoints))
        except RpcError:
            endpoints.popleft()
    return _asked(endpoints[0], rpc, request, until - time.monotonic())


def _asked(endpoint: "HubAddress", rpc: str, request: bytes, limit_s: float) -> bytes:
    """Return the response to a request, by gRPC without a loop. Raises grpc.RpcError."""
    from grpc import insecure_channel, secure_channel, ssl_channel_credentials

    tls, target = endpoint.tls, endpoint.target
    metadata = (("authorization", f"Bearer {endpoint.token}"),) if endpoint.token else ()
    channel: Any = (
        secure_channel(target, ssl_channel_credentials(tls.ca, tls.key, tls.cert)) if tls else insecure_channel(target)
    )
    with channel:  # without serializers, bytes are sent and returned
        return channel.unary_unary(f"/{rpc}")(request, timeout=limit_s, metadata=metadata)
