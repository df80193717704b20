"""A model that plays a script, in all APIs that the programs speak, on a port of its own."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from .dialects import MODEL, Action, Chat, Content, Messages, Responses, Turn

Script = Callable[[Turn], Awaitable[Action]]
"""What the model does in a turn."""


class _Server(uvicorn.Server):
    """Leaves the signals to the command that runs it."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class Model:
    """The server of the model."""

    def __init__(self, script: Script) -> None:
        self._script = script

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        """Serves during the block; its URL."""
        routes = [
            Route("/v1/chat/completions", self._serve(Chat), methods=["POST"]),
            Route("/v1/responses", self._serve(Responses), methods=["POST"]),
            Route("/v1/messages", self._serve(Messages), methods=["POST"]),
            Route("/v1/messages/count_tokens", _count_tokens, methods=["POST"]),
            Route("/v1beta/models/{method:path}", self._serve(Content), methods=["POST"]),
            Route("/v1/models", _list_models),
            Route("/{rest:path}", _refuse, methods=["GET", "POST", "HEAD", "PUT"]),
        ]
        config = uvicorn.Config(Starlette(routes=routes), host="127.0.0.1", port=0, log_level="warning", lifespan="off")
        server = _Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve)
            while not server.started:
                await anyio.sleep(0.02)
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
            server.should_exit = server.force_exit = True

    def _serve(self, dialect: Any) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            body = await request.body()
            action = await self._script(replace(dialect.read(json.loads(body)), body=body.decode()))

            async def stream() -> AsyncIterator[bytes]:
                for part in dialect.write(action):
                    yield part

            return StreamingResponse(stream(), media_type="text/event-stream")

        return serve


async def _refuse(_request: Request) -> Response:
    return JSONResponse({"error": {"message": "the script has none of this"}}, 404)


async def _count_tokens(_request: Request) -> Response:
    return JSONResponse({"input_tokens": 1})


async def _list_models(_request: Request) -> Response:
    return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
