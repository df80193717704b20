"""Lists the connected hosts for operators."""

from itertools import islice
from typing import Final

from hubbub.v1 import mcp_pb2 as pb
from hubbubd.core.access import EVERYTHING
from hubbubd.errors import NotFound
from hubbubd.rpc.messages import pages, requests
from hubbubd.rpc.messages.values import text, timestamp
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.oversight import ConnectedHost, OpenRequest

MAX_REQUESTS: Final = 100
"""The most open requests of one host in a response: a host without sessions may have very many."""


def list_page(hub: Hub, request: pb.ListHostsRequest) -> pb.ListHostsResponse:
    """Return a page of hosts, newest first. Raises InvalidArgument."""
    chosen = requests.host_filter(request.filter)
    hosts, token = pages.page_records(
        [each for each in hub.hosts.all() if chosen.matches(each)],
        request,
        pages.newest_position,
        lambda host: _render_host(hub, host),
        list_filter=request.filter,
        scope=EVERYTHING,
        backwards=pages.is_oldest_first(request),
    )
    return pb.ListHostsResponse(hosts=hosts, next_page_token=token)


def _render_host(hub: Hub, host: ConnectedHost) -> pb.ConnectedHost:
    """Return a connected host as a message, with its first MAX_REQUESTS open requests."""
    identity = host.identity
    return pb.ConnectedHost(
        id=host.id,
        principal=identity.principal,
        name=text(identity.name),
        version=text(identity.version),
        protocol_version=identity.revision,
        transport=identity.via,
        endpoint=identity.endpoint,
        has_session=host.has_session,
        created_at=timestamp(host.created_at),
        last_used_at=timestamp(host.last_used_at),
        requests=[_render_request(hub, each) for each in islice(host.requests, MAX_REQUESTS)],
        stream_open=host.has_open_stream,
        gone=host.has_probably_left(hub.clock.now()),
        questions=[pb.AskedKind(kind=kind, why_not=why) for kind, why in host.why_not_asked().items()],
    )


def _render_request(hub: Hub, request: OpenRequest) -> pb.HostRequest:
    """Return an open request of a host as a message, with the pending requests of its call."""
    try:
        pending = hub.calls.get(request.call_id).pending_ids if request.call_id else ()
    except NotFound:  # the call is not made yet, or its server was removed
        pending = ()
    return pb.HostRequest(
        method=text(request.method),
        created_at=timestamp(request.created_at),
        call_id=request.call_id,
        pending_request_ids=pending,
    )
