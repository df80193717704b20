"""Runs the bridge: the host's two pipes, the MCP server, and the end of both."""

import asyncio
import signal

import anyio
import orjson
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, jsonrpc_message_adapter

from hubbub_acp.agent.agent_process import AgentProcess, ProcessStarter
from hubbub_acp.log import log
from hubbub_acp.options import AcpOptions
from hubbub_acp.surface.acp_server import AcpServer
from hubbub_acp.values import read_members
from hubbub_local.stdio import LineTooLong, PipeLineWriter, read_lines

LINE_BYTES = 64 * 1024 * 1024
"""The most bytes of a line from the host: a prompt, and what is around it."""

END_LIMIT_S = 1.0
"""Seconds for responses to be written, after the host has closed its end."""


async def serve(
    options: AcpOptions, stdin: int = 0, stdout: int = 1, *, start_agent: ProcessStarter = AgentProcess.start
) -> None:
    """Serve the host at these descriptors until it closes its end, or SIGTERM or SIGINT comes; then end the agent."""
    shutdown = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, shutdown.set)
    bridge = AcpServer(options, start_agent)
    await bridge.sessions.load_records()
    serving = asyncio.create_task(_serve_streams(bridge, stdin, stdout, shutdown))
    awaiting_shutdown = asyncio.create_task(shutdown.wait())
    try:
        await asyncio.wait({serving, awaiting_shutdown}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await bridge.sessions.close()
        for task in (serving, awaiting_shutdown):
            task.cancel()
        ends = await asyncio.gather(serving, awaiting_shutdown, return_exceptions=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    for end in ends:
        if isinstance(end, Exception):
            raise end


async def _serve_streams(bridge: AcpServer, stdin: int, stdout: int, shutdown: asyncio.Event) -> None:
    """Serve MCP over the host's pipes until the host closes its end; then set `shutdown`."""
    from_host, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_host = anyio.create_memory_object_stream[SessionMessage](0)
    writer = PipeLineWriter(stdout, shutdown.set)
    writing = asyncio.create_task(writer.run())
    pumps = [
        asyncio.create_task(_pump_from_host(stdin, from_host, shutdown, writer)),
        asyncio.create_task(_pump_to_host(to_host, writer)),
    ]
    try:
        await bridge.server.run(incoming, outgoing, bridge.make_introduction())
    finally:
        for task in (*pumps, writing):
            task.cancel()
        await asyncio.gather(*pumps, writing, return_exceptions=True)
        shutdown.set()


async def _pump_from_host(
    stdin: int,
    from_host: MemoryObjectSendStream[SessionMessage | Exception],
    shutdown: asyncio.Event,
    writer: PipeLineWriter,
) -> None:
    """Pass each message of the host on to the server, until the host closes its end; refuse one that is too long."""
    async with from_host:
        async for line in read_lines(stdin, LINE_BYTES):
            if isinstance(line, LineTooLong):
                problem = f"a message of more than {LINE_BYTES} bytes was passed over: shorten the prompt"
                log(f"hubbub acp: {problem}")
                members = read_members(line.beginning)
                if "id" in members and "method" in members:
                    error = {"code": INVALID_REQUEST, "message": problem}
                    writer.queue_line(orjson.dumps({"jsonrpc": "2.0", "id": members["id"], "error": error}))
                    await writer.wait_for_capacity()
                continue
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError as exc:
                await from_host.send(exc)
                continue
            await from_host.send(SessionMessage(message))
        shutdown.set()


async def _pump_to_host(to_host: MemoryObjectReceiveStream[SessionMessage], writer: PipeLineWriter) -> None:
    """Write each message of the server to the host."""
    async with to_host:
        async for message in to_host:
            writer.queue_line(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
            await writer.wait_for_capacity()
