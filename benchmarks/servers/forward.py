"""A proxy that does nothing but forward: what one more process costs, with the libraries that the hub uses.

    PORT=... forward.py URL

It has aiohttp on both sides, on uvloop; the hub has that on its way to servers.
"""

import asyncio
import os
import sys
from typing import Final

import uvloop
from aiohttp import ClientSession, TCPConnector, web

OWN: Final = {"host", "content-length", "connection", "accept-encoding", "transfer-encoding"}
"""Header fields of one connection."""


async def serve(url: str, port: int) -> None:
    """Forwards whatever is asked of this port, until the process ends."""
    async with ClientSession(connector=TCPConnector(limit=0)) as session:

        async def forward(request: web.BaseRequest) -> web.StreamResponse:
            headers = {name: value for name, value in request.headers.items() if name.lower() not in OWN}
            async with session.request(request.method, url, data=await request.read(), headers=headers) as answer:
                headers = {name: value for name, value in answer.headers.items() if name.lower() not in OWN}
                if answer.content_type != "text/event-stream":
                    return web.Response(body=await answer.read(), status=answer.status, headers=headers)
                response = web.StreamResponse(status=answer.status, headers=headers)
                await response.prepare(request)
                async for part in answer.content.iter_any():
                    await response.write(part)
                return response

        runner = web.ServerRunner(web.Server(forward))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(os.environ["PORT"])))
