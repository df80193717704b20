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


def _make_list_completer(
    module: str, rpc: str, find_names: Callable[[Any], list[str]], condition: Mapping[str, Any] | None = None
) -> Callable[[typer.Context, str], list[str]]:
    """Return a function that completes a word by names in a list of the hub, newest first.

    The function lists by `rpc`, whose messages are in `module` of the API, with `condition` as its filter; `find_names`
    takes the names out of a response.
    """

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        """Return the names in the list that begin with a word; empty if anything goes wrong."""
        return _list_matching_names(context, incomplete, module, rpc, find_names, condition)

    return complete


def _make_request_completer(**more: list[str]) -> Callable[[typer.Context, str], list[str]]:
    """Return a function that completes the id of an open pending request; `more` are conditions of the filter."""
    condition = {"states": ["PENDING_REQUEST_STATE_OPEN"], **more}
    rpc = "InboxService/ListPendingRequests"
    return _make_list_completer("inbox", rpc, lambda it: _list_ids(it.pending_requests), condition)


def _list_names(records: Iterable[Any]) -> list[str]:
    return [each.name for each in records]


def _list_ids(records: Iterable[Any]) -> list[str]:
    return [each.id for each in records]


servers = _make_list_completer("server", "ServerService/ListServers", lambda it: _list_names(it.servers))
members = _make_list_completer("fleet", "FleetService/GetFleet", lambda it: _list_names(it.members))
tokens = _make_list_completer("admin", "AdminService/ListTokens", lambda it: _list_names(it.tokens))
calls = _make_list_completer("call", "CallService/ListCalls", lambda it: _list_ids(it.calls))
tasks = _make_list_completer("task", "TaskService/ListTasks", lambda it: _list_ids(it.tasks))
remembered_approvals = _make_list_completer(
    "approval", "ApprovalService/ListRememberedApprovals", lambda it: _list_ids(it.approvals)
)
requests = _make_request_completer()
pages = _make_request_completer(kinds=["PENDING_REQUEST_KIND_ELICITATION_URL"])
"""Open pending requests with a page to visit."""


def _make_catalog_completer(kind: str) -> Callable[[typer.Context, str], list[str]]:
    """Return a function that completes the name of an entry of the catalog, at the server that the command names.

    If `kind` is empty, the command names the kind, too.
    """

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        """Return the names that begin with a word; empty if the command names no server."""
        server: str | None = context.params.get("server")
        if not server:
            return []
        own_kind: str = kind or context.params.get("kind") or "tool"
        key = {"resource": "uri", "template": "uriTemplate", "skill": "uri"}.get(own_kind, "name")

        def find_names(response: Any) -> list[str]:
            """Return the names, or for some kinds the URIs, of the entries in a response."""
            from hubbub_client.data.conversion import read_document  # imported late, with gRPC

            return [str(as_object(read_document(each.object)).get(key) or "") for each in response.entries]

        rpc = "CatalogService/ListCatalogEntries"
        condition = {"server": server, "kinds": [f"CATALOG_KIND_{own_kind.upper()}"]}
        return _list_matching_names(context, incomplete, "catalog", rpc, find_names, condition, max_pages=MAX_PAGES)

    return complete


tools = _make_catalog_completer("tool")
prompts = _make_catalog_completer("prompt")
resources = _make_catalog_completer("resource")
entries = _make_catalog_completer("")
"""Entries of the kind that the command names."""


def _list_matching_names(
    context: typer.Context,
    incomplete: str,
    module: str,
    rpc: str,
    find_names: Callable[[Any], list[str]],
    condition: Mapping[str, Any] | None = None,
    max_pages: int = 1,
) -> list[str]:
    """Return the names in a list of the hub that begin with the word `incomplete`; empty if anything goes wrong.

    `rpc` lists, up to `max_pages` pages; its messages are in `module` of the API. `find_names` takes the names out of
    a response.
    """
    from hubbub_client.transport.discovery import HubLocation, discover_all

    root_params: dict[str, Any] = context.find_root().params
    messages = import_module(f"hubbub.v1.{module}_pb2")
    method = rpc.partition("/")[2]
    names: list[str] = []
    give_up_at = time.monotonic() + LIMIT_S
    try:
        endpoints = deque(discover_all(HubLocation(*(root_params.get(name) for name in HubLocation._fields))))
        kind = getattr(messages, f"{method}Request")
        paged = "page_token" in kind.DESCRIPTOR.fields_by_name
        request = kind(filter=condition or {}, page_size=PAGE_SIZE) if paged else kind()
        for _ in range(max_pages):
            raw = _call_first_that_answers(endpoints, f"hubbub.v1.{rpc}", request.SerializeToString(), give_up_at)
            response = getattr(messages, f"{method}Response").FromString(raw)
            names += find_names(response)
            if not paged:
                break
            request.page_token = response.next_page_token
            if not request.page_token:
                break
    except Exception:  # noqa: BLE001 - a shell that completes has no place for an error
        return []
    return [word for word in dict.fromkeys(names) if word.startswith(incomplete) and SAFE_WORD.fullmatch(word)]


def _call_first_that_answers(endpoints: "deque[HubAddress]", rpc: str, request: bytes, give_up_at: float) -> bytes:
    """Return the response of the first address that answers, and remove those before it from `endpoints`.

    The time until `give_up_at` is shared out among the addresses. Raises grpc.RpcError if none answers.
    """
    from grpc import RpcError

    while len(endpoints) > 1:
        try:
            return _call_endpoint(endpoints[0], rpc, request, (give_up_at - time.monotonic()) / len(endpoints))
        except RpcError:
            endpoints.popleft()
    return _call_endpoint(endpoints[0], rpc, request, give_up_at - time.monotonic())


def _call_endpoint(endpoint: "HubAddress", rpc: str, request: bytes, limit_s: float) -> bytes:
    """Return the response of one address, by gRPC without an event loop. Raises grpc.RpcError."""
    from grpc import insecure_channel, secure_channel, ssl_channel_credentials

    tls, target = endpoint.tls, endpoint.target
    metadata = (("authorization", f"Bearer {endpoint.token}"),) if endpoint.token else ()
    channel: Any = (
        secure_channel(target, ssl_channel_credentials(tls.ca, tls.key, tls.cert)) if tls else insecure_channel(target)
    )
    with channel:  # without serializers, bytes are sent and returned
        return channel.unary_unary(f"/{rpc}")(request, timeout=limit_s, metadata=metadata)
