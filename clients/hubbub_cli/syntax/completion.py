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
PAGE_SIZE = 200
MAX_PAGES = 50
"""Pages of the catalog of one server."""

# Shells insert a suggestion as it is, and one shell evaluates it first. So names of servers are offered only if no
# character of them means anything to a shell.
SAFE_WORD = re.compile(r"[\w./:@%+,][\w./:@%+,-]*", re.ASCII)


def _complete_from_list(
    module: str, rpc: str, find_names: Callable[[Any], list[str]], condition: Mapping[str, Any] | None = None
) -> Callable[[typer.Context, str], list[str]]:
    """Return what completes a word from a list of the hub, the newest first; `module` has its messages."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        return _list_fitting(context, incomplete, module, rpc, find_names, condition)

    return complete


def _complete_requests(**more: list[str]) -> Callable[[typer.Context, str], list[str]]:
    condition = {"states": ["PENDING_REQUEST_STATE_OPEN"], **more}
    rpc = "InboxService/ListPendingRequests"
    return _complete_from_list("inbox", rpc, lambda it: _ids(it.pending_requests), condition)


def _names(records: Iterable[Any]) -> list[str]:
    return [each.name for each in records]


def _ids(records: Iterable[Any]) -> list[str]:
    return [each.id for each in records]


servers = _complete_from_list("server", "ServerService/ListServers", lambda it: _names(it.servers))
members = _complete_from_list("fleet", "FleetService/GetFleet", lambda it: _names(it.members))
tokens = _complete_from_list("admin", "AdminService/ListTokens", lambda it: _names(it.tokens))
calls = _complete_from_list("call", "CallService/ListCalls", lambda it: _ids(it.calls))
tasks = _complete_from_list("task", "TaskService/ListTasks", lambda it: _ids(it.tasks))
remembered_approvals = _complete_from_list(
    "approval", "ApprovalService/ListRememberedApprovals", lambda it: _ids(it.approvals)
)
requests = _complete_requests()
pages = _complete_requests(kinds=["PENDING_REQUEST_KIND_ELICITATION_URL"])
"""Open pending requests with a page to visit."""


def _complete_from_catalog(kind: str) -> Callable[[typer.Context, str], list[str]]:
    """Return what completes an entry of a kind, or of the kind that the command names, at the server it names."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        server: str | None = context.params.get("server")
        if not server:
            return []
        own_kind: str = kind or context.params.get("kind") or "tool"
        key = {"resource": "uri", "template": "uriTemplate", "skill": "uri"}.get(own_kind, "name")

        def find_names(response: Any) -> list[str]:
            from hubbub_client.data.conversion import document  # imported late, with gRPC

            return [str(as_object(document(each.object)).get(key) or "") for each in response.entries]

        rpc = "CatalogService/ListCatalogEntries"
        condition = {"server": server, "kinds": [f"CATALOG_KIND_{own_kind.upper()}"]}
        return _list_fitting(context, incomplete, "catalog", rpc, find_names, condition, max_pages=MAX_PAGES)

    return complete


tools = _complete_from_catalog("tool")
prompts = _complete_from_catalog("prompt")
resources = _complete_from_catalog("resource")
entries = _complete_from_catalog("")
"""Entries of the kind that the command names."""


def _list_fitting(
    context: typer.Context,
    incomplete: str,
    module: str,
    rpc: str,
    find_names: Callable[[Any], list[str]],
    condition: Mapping[str, Any] | None = None,
    max_pages: int = 1,
) -> list[str]:
    """Return what fits of the names in a list; `module` has its messages. Whatever goes wrong, nothing fits."""
    from hubbub_client.transport.discovery import Where, discover_all

    root_params: dict[str, Any] = context.find_root().params
    messages = import_module(f"hubbub.v1.{module}_pb2")
    method = rpc.partition("/")[2]
    found: list[str] = []
    give_up_at = time.monotonic() + LIMIT_S
    try:
        endpoints = deque(discover_all(Where(*(root_params.get(name) for name in Where._fields))))
        kind = getattr(messages, f"{method}Request")
        paged = "page_token" in kind.DESCRIPTOR.fields_by_name
        request = kind(filter=condition or {}, page_size=PAGE_SIZE) if paged else kind()
        for _ in range(max_pages):
            raw = _ask_first_that_answers(endpoints, f"hubbub.v1.{rpc}", request.SerializeToString(), give_up_at)
            response = getattr(messages, f"{method}Response").FromString(raw)
            found += find_names(response)
            if not paged:
                break
            request.page_token = response.next_page_token
            if not request.page_token:
                break
    except Exception:  # noqa: BLE001 - a shell that completes has no place for an error
        return []
    return [word for word in dict.fromkeys(found) if word.startswith(incomplete) and SAFE_WORD.fullmatch(word)]


def _ask_first_that_answers(endpoints: "deque[HubAddress]", rpc: str, request: bytes, give_up_at: float) -> bytes:
    """Return the response of the first endpoint that answers, and forget those before it. Raises grpc.RpcError."""
    from grpc import RpcError

    while len(endpoints) > 1:
        try:
            return _ask_endpoint(endpoints[0], rpc, request, (give_up_at - time.monotonic()) / len(endpoints))
        except RpcError:
            endpoints.popleft()
    return _ask_endpoint(endpoints[0], rpc, request, give_up_at - time.monotonic())


def _ask_endpoint(endpoint: "HubAddress", rpc: str, request: bytes, limit_s: float) -> bytes:
    """Return the response to a request, by gRPC without a loop. Raises grpc.RpcError."""
    from grpc import insecure_channel, secure_channel, ssl_channel_credentials

    tls, target = endpoint.tls, endpoint.target
    metadata = (("authorization", f"Bearer {endpoint.token}"),) if endpoint.token else ()
    channel: Any = (
        secure_channel(target, ssl_channel_credentials(tls.ca, tls.key, tls.cert)) if tls else insecure_channel(target)
    )
    with channel:  # without serializers, bytes are sent and returned
        return channel.unary_unary(f"/{rpc}")(request, timeout=limit_s, metadata=metadata)
