"""The table of what each RPC needs."""

from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from hubbubd.rpc.permissions import RULES
from hubbubd.rpc.server import SERVICES

SERVED = [
    *SERVICES.values(),
    health_pb2.DESCRIPTOR.services_by_name["Health"],
    reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"],
]


def test_every_rpc_has_a_rule_and_every_rule_an_rpc() -> None:
    paths = {f"/{service.full_name}/{method.name}" for service in SERVED for method in service.methods}
    assert set(RULES) == paths
