"""What a failed POST means for the connection to its server, and for the calls beside it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from yarl import URL

from hubbubd.config import ServerConfig
from hubbubd.errors import Fault
from hubbubd.upstream.http.client import HttpClient, HttpRequest
from hubbubd.upstream.http.connections import Connections
from hubbubd.upstream.http.streams.delivery import MessageDelivery, MessageRefused
from hubbubd.upstream.messages.exchange import OUTGOING, OutgoingMessage


@asynccontextmanager
async def breaking() -> AsyncIterator[str]:
    """A server that closes each connection once it has read of a request; its URL."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def lost_with(url: str, exchange: OutgoingMessage) -> list[str]:
    """The faults that the connection is lost with when this is posted."""
    lost: list[Fault] = []
    config = ServerConfig.model_validate({"name": "peer", "url": url})
    async with Connections().use_session(None) as session:
        client = HttpClient(config, session, ssl.create_default_context(), None, None)
        OUTGOING.set(exchange)
        with pytest.raises(MessageRefused) as refused:
            await MessageDelivery(client, lost.append, all_vital=False).send(
                HttpRequest("POST", URL(url), client.build_headers({}), b'{"method": "tools/call"}')
            )
    assert exchange.fault is refused.value.fault
    return [fault.code for fault in lost]


@pytest.mark.parametrize("awaits_result", [True, False])
async def test_a_server_that_accepts_no_connection_is_lost_with_the_first_message(awaits_result: bool) -> None:
    exchange = OutgoingMessage(awaits_result, method="tools/call", request_id=1)
    assert await lost_with("http://127.0.0.1:1/", exchange) == ["CONNECTION_REFUSED"]


@pytest.mark.parametrize("awaits_result", [True, False])
async def test_a_message_whose_connection_breaks_leaves_the_calls_beside_it_alone(awaits_result: bool) -> None:
    exchange = OutgoingMessage(awaits_result, method="tools/call", request_id=1)
    async with breaking() as url:
        assert await lost_with(url, exchange) == []
    assert exchange.fault.code == "CONNECTION_LOST"
