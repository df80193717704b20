"""A process between a gRPC stream and a server that does nothing but forward: what the way itself costs.

    forward_calls.py COMMAND...      each message is a line for that server over stdio
    forward_calls.py URL             each message is posted there, and its answer read

It has the libraries that the hub has on this way, on uvloop. It prints its port.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import grpc
import uvloop
from grpc import aio

METHOD: Final = "/forward.Calls/Stream"
MAX_LINE_BYTES: Final = 1024 * 1024

Context = aio.ServicerContext[bytes, bytes]
Forward = Callable[[Context], Awaitable[None]]


@asynccontextmanager
async def stdio(command: list[str]) -> AsyncGenerator[Forward]:
    """Forwards to the standard input of a process, and its standard output back."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=MAX_LINE_BYTES)
    assert process.stdin
    assert process.stdout
    written, read = process.stdin, process.stdout

    async def forward(context: Context) -> None:
        async def back() -> None:
            while line := await read.readline():
                await context.write(line)

        task = asyncio.create_task(back())
        while (message := await context.read()) is not aio.EOF:
            written.write(message + b"\n")
        task.cancel()

    try:
        yield forward
    finally:
        process.terminate()


@asynccontextmanager
async def http(url: str) -> AsyncGenerator[Forward]:
    """Forwards by a POST for each message; the first part of a message, up to a line feed, is its header fields."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def forward(context: Context) -> None:
            writing = asyncio.Lock()  # gRPC takes one message at a time

            async def post(message: bytes) -> None:
                fields, _, body = message.partition(b"\n")
                headers = dict(each.split(": ", 1) for each in fields.decode().split("; "))
                async with session.post(url, data=body, headers=headers) as answer:
                    arrived = await answer.read()
                async with writing:
                    await context.write(arrived)

            tasks = set[asyncio.Task[None]]()
            while (message := await context.read()) is not aio.EOF:
                tasks.add(task := asyncio.create_task(post(message)))
                task.add_done_callback(tasks.discard)

        yield forward


async def main(command: list[str]) -> None:
    """Serves until the process is ended."""
    async with http(command[0]) if command[0].startswith("http") else stdio(command) as forward:

        async def stream(_requests: Any, context: Context) -> None:
            await forward(context)

        service, _, name = METHOD.strip("/").partition("/")
        methods: dict[str, Any] = {name: grpc.stream_stream_rpc_method_handler(stream)}
        server = aio.server()
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, methods)])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        print(port, flush=True)
        await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1:]))
