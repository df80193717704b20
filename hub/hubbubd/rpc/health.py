"""The standard health service (https://github.com/grpc/grpc/blob/master/doc/health-checking.md).

A hub whose store cannot be written is NOT_SERVING as a whole and in each service, as is one that stops.
"""

from collections.abc import AsyncGenerator, Collection
from typing import Any, cast

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from hubbubd.errors import NotFound, Unavailable
from hubbubd.runtime.health import Health

# Its published types lack what came to the service later.
pb = cast("Any", health_pb2)
SERVICE: ServiceDescriptor = pb.DESCRIPTOR.services_by_name["Health"]


class HealthService:
    """The health of these services and, under the empty name, of them all."""

    def __init__(self, health: Health, services: Collection[str]) -> None:
        self._health = health
        self._known = {"", *services}

    async def check(self, request: health_pb2.HealthCheckRequest) -> health_pb2.HealthCheckResponse:
        """The health of a service now. Raises NotFound."""
        if request.service not in self._known:
            raise NotFound("service", request.service)
        return _response(self._health.well)

    async def list(self, _request: object) -> Message:
        """The health of all services now."""
        return pb.HealthListResponse(statuses={name: _response(self._health.well) for name in self._known})

    async def watch(self, request: health_pb2.HealthCheckRequest) -> AsyncGenerator[bytes, None]:
        """The health of a service now and at each change. Raises Unavailable when the hub stops."""
        if request.service not in self._known:
            yield pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVICE_UNKNOWN).SerializeToString()
        told = None
        async for well in self._health.watch():
            if request.service in self._known and well != told:
                yield _response(well).SerializeToString()
                told = well
        raise Unavailable("the hub is stopping", reason="SHUTTING_DOWN")


def _response(well: bool) -> health_pb2.HealthCheckResponse:
    return pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVING if well else pb.HealthCheckResponse.NOT_SERVING)
