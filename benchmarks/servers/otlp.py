"""A collector of traces that throws them away: whatever is exported is taken. PORT in the environment."""

import os
from concurrent.futures import ThreadPoolExecutor

import grpc


class Everything(grpc.GenericRpcHandler):
    """Answers every request with an empty message."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """The same for all methods."""
        return grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"")


if __name__ == "__main__":
    server = grpc.server(ThreadPoolExecutor(1), handlers=[Everything()])
    server.add_insecure_port(f"127.0.0.1:{os.environ['PORT']}")
    server.start()
    server.wait_for_termination()
