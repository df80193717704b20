"""The standard health service (https://github.com/grpc/grpc/blob/master/doc/health-checking.md).

A hub whose store cannot be written, or that is stopping, is NOT_SERVING as a whole and in each service.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import Any, cast

import anyio
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from hubbubd.errors import NotFound, ResourceExhausted, Unavailable
from hubbubd.rpc.context import CallerGroup, current
from hubbubd.runtime.records import Health

# The published type stubs lack later additions to the service.
pb = cast("Any", health_pb2)
SERVICE: ServiceDescriptor = pb.DESCRIPTOR.services_by_name["Health"]

MAX_WATCHES = 100
"""The most watches without a credential, per group: strangers must not fill the hub with them."""


class HealthService:
    """The health of each service and, under the empty name, of all."""

    def __init__(self, health: Health, services: Collection[str], stopped: anyio.Event) -> None:
        """`stopped` is set just before the ports close."""
        self._health = health
        self._stopped = stopped
        self._service_names = {"", *services}
        self._watches = Counter[CallerGroup]()

    async def check(self, request: health_pb2.HealthCheckRequest) -> health_pb2.HealthCheckResponse:
        """Return a service's health. Raises NotFound."""
        if request.service not in self._service_names:
            raise NotFound("service", request.service)
        return _make_response(self._health.is_serving)

    async def list(self, _request: object) -> Message:
        """Return the health of all services."""
        return pb.HealthListResponse(
            statuses={name: _make_response(self._health.is_serving) for name in self._service_names}
        )

    async def watch(self, request: health_pb2.HealthCheckRequest) -> AsyncGenerator[bytes, None]:
        """Stream a service's health, now and at each change.

        Raises Unavailable when the hub stops, ResourceExhausted (TOO_MANY_WATCHERS) beyond MAX_WATCHES.
        """
        group = current().caller_group
        if group is not CallerGroup.KNOWN and self._watches[group] >= MAX_WATCHES:
            raise ResourceExhausted(
                f"{MAX_WATCHES} callers without a credential watch the hub's health already; check it instead",
                reason="TOO_MANY_WATCHERS",
            )
        self._watches[group] += 1
        try:
            async with aclosing(self._watch_changes(request)) as changes:
                async for response in changes:
                    yield response
        finally:
            self._watches[group] -= 1

    async def _watch_changes(self, request: health_pb2.HealthCheckRequest) -> AsyncGenerator[bytes, None]:
        """Yield a service's health, now and at each change, or that there is no such service. Raises Unavailable."""
        if request.service not in self._service_names:
            yield pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVICE_UNKNOWN).SerializeToString()
        sent = None
        async for is_serving in self._health.watch():
            if request.service in self._service_names and is_serving != sent:
                yield _make_response(is_serving).SerializeToString()
                sent = is_serving
        await self._stopped.wait()  # not ended earlier: gRPC's own clients watch again at once
        raise Unavailable("the hub is stopping", reason="SHUTTING_DOWN")


def _make_response(is_serving: bool) -> health_pb2.HealthCheckResponse:
    return pb.HealthCheckResponse(
        status=pb.HealthCheckResponse.SERVING if is_serving else pb.HealthCheckResponse.NOT_SERVING
    )
