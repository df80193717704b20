"""A fan-out of bare gRPC: `Watch` streams to each caller what any caller gives to `Publish`. It prints its port."""

import asyncio
from typing import Any

import grpc
import uvloop
from grpc import aio

SERVICE = "bare.Bare"


async def main() -> None:
    """Serves until the process is ended."""
    watchers: set[asyncio.Queue[bytes]] = set()

    async def watch(request: bytes, context: "aio.ServicerContext[bytes, bytes]") -> None:
        mine = asyncio.Queue[bytes]()
        watchers.add(mine)
        try:
            await context.write(request)
            while True:
                await context.write(await mine.get())
        finally:
            watchers.discard(mine)

    async def publish(request: bytes, _context: "aio.ServicerContext[bytes, bytes]") -> bytes:
        for each in watchers:
            each.put_nowait(request)
        return b""

    methods: dict[str, Any] = {
        "Watch": grpc.unary_stream_rpc_method_handler(watch),
        "Publish": grpc.unary_unary_rpc_method_handler(publish),
    }
    server = aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, methods)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(main())
