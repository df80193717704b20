"""A chat as far as a bot needs one, in the shape of Slack's Web API: posting to a channel, and reading a thread."""

import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from aiohttp import web

TOKEN = "xoxb-test"


class Chat:
    """The messages of one channel. `url` is where bots find it. As Slack, it reads fields of a form, not JSON."""

    def __init__(self) -> None:
        self.url = ""
        self.messages: list[dict[str, Any]] = []
        self.away = 0
        """So many times more nobody may read."""
        self._numbers = itertools.count(1)
        self._news = anyio.Event()

    def write(self, text: str, thread: str, user: str = "ann") -> None:
        """A person writes into a thread."""
        self._add({"user": user, "text": text, "thread_ts": thread})

    async def said(self, text: str) -> dict[str, Any]:
        """Waits until the bot has said something with this text."""
        while True:
            news = self._news
            for message in self.messages:
                if message.get("bot_id") and text in message["text"]:
                    return message
            await news.wait()

    async def post(self, request: web.Request) -> web.Response:
        """chat.postMessage"""
        if (refused := self._refused(request)) is not None:
            return refused
        body = await request.post()
        thread = {"thread_ts": body["thread_ts"]} if body.get("thread_ts") else {}
        made = self._add({"bot_id": "B1", "user": "bot", "text": body["text"], **thread})
        return web.json_response({"ok": True, "ts": made["ts"], "channel": body["channel"]})

    async def replies(self, request: web.Request) -> web.Response:
        """conversations.replies"""
        if (refused := self._refused(request)) is not None:
            return refused
        thread = (await request.post())["ts"]
        if self.away > 0:
            self.away -= 1
            return web.json_response({"ok": False, "error": "ratelimited"}, status=429)
        found = [each for each in self.messages if thread in (each["ts"], each.get("thread_ts"))]
        return web.json_response({"ok": True, "messages": found})

    def _add(self, message: dict[str, Any]) -> dict[str, Any]:
        made = {**message, "ts": f"1700000000.{next(self._numbers):06}"}
        self.messages.append(made)
        news, self._news = self._news, anyio.Event()
        news.set()
        return made

    @staticmethod
    def _refused(request: web.Request) -> web.Response | None:
        if request.headers.get("authorization") == f"Bearer {TOKEN}":
            return None
        return web.json_response({"ok": False, "error": "invalid_auth"})


@asynccontextmanager
async def chatting() -> AsyncGenerator[Chat]:
    """A chat that listens on loopback."""
    chat = Chat()
    app = web.Application()
    app.add_routes([web.post("/chat.postMessage", chat.post), web.post("/conversations.replies", chat.replies)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0]
        chat.url = f"http://{host}:{port}"
        yield chat
    finally:
        await runner.cleanup()
