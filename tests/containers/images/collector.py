"""Takes what is exported over OTLP at port 4317, and prints the service and the number of bytes of each request."""

import signal
from concurrent import futures
from typing import Any

import grpc


class Taker(grpc.GenericRpcHandler):
    """Answers every method with an empty message, which says that all was taken."""

    def service(self, handler_call_details: Any) -> "grpc.RpcMethodHandler[bytes, bytes]":
        """Return the handler of a method."""
        method: str = handler_call_details.method

        def take(request: bytes, _: grpc.ServicerContext) -> bytes:
            print(f"{method.split('.')[-3]} {len(request)} bytes", flush=True)
            return b""

        return grpc.unary_unary_rpc_method_handler(take)


# The first process of a container is not ended by a signal that it does not handle.
signal.signal(signal.SIGTERM, signal.default_int_handler)
server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Taker()])
server.add_insecure_port("0.0.0.0:4317")
server.start()
server.wait_for_termination()
