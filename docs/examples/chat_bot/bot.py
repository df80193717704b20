"""A bot that posts what servers ask to a chat, and takes the first reply in the thread as the answer.

    CHAT_URL=https://chat.example/api CHAT_TOKEN=... python bot.py CHANNEL

The chat is spoken to as Slack is: `chat.postMessage` posts, `conversations.replies` reads a thread. A form of yes and
no is answered by "yes" or "no"; any other form by a line of JSON; a text to write by the text. "decline" declines.
"""

import asyncio
import html
import json
import os
import sys
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

import hubbub_client
from hubbub_client import HubbubError, PendingRequest

POLL_S = float(os.environ.get("CHAT_POLL_S", "2"))
DECLINE = "decline"


class Chat:
    """The few methods of a chat that the bot needs."""

    def __init__(self, url: str, token: str, channel: str) -> None:
        self._url, self._token, self._channel = url.rstrip("/"), token, channel

    async def post(self, text: str, thread: str | None = None) -> str:
        """Post a message; return its `ts`, which names the thread under it."""
        return (await self._ask("chat.postMessage", text=text, thread_ts=thread))["ts"]

    async def replies(self, thread: str) -> list[Mapping[str, Any]]:
        """Return what people have written in a thread, oldest first."""
        try:
            found = (await self._ask("conversations.replies", ts=thread))["messages"]
        except OSError as error:  # away for a moment, or asked too often: the next look finds them
            print(f"the chat cannot be read: {error}", file=sys.stderr)
            return []
        return [each for each in found if each["ts"] != thread and not each.get("bot_id")]

    async def _ask(self, method: str, **fields: str | None) -> Any:
        # Slack takes fields of a form everywhere, and JSON only where something is written.
        given = {"channel": self._channel, **{name: value for name, value in fields.items() if value is not None}}
        request = urllib.request.Request(
            f"{self._url}/{method}",
            data=urllib.parse.urlencode(given).encode(),
            headers={"authorization": f"Bearer {self._token}"},
        )

        def send() -> Any:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response)

        answer = await asyncio.to_thread(send)
        if not answer.get("ok"):
            raise RuntimeError(f"the chat refuses {method}: {answer.get('error')}")
        return answer


def asked(request: PendingRequest) -> str:
    """What the chat shows of a question. Text of servers is escaped: to Slack, `<!channel>` calls everybody."""
    if request.kind == "sampling":
        return f"*{request.server}* wants a text. Reply with it."
    fields = request.request["requestedSchema"]["properties"]
    how = "`yes` or `no`" if flag(request) else "JSON: " + ", ".join(f"`{plain(name)}`" for name in fields)
    return f"*{request.server}* asks: {plain(request.request['message'])}\nReply with {how}, or `{DECLINE}`."


def plain(text: str) -> str:
    """A text as the chat shows it as it is."""
    return html.escape(text, quote=False)


def flag(request: PendingRequest) -> str | None:
    """The only field of a form of yes and no."""
    fields = request.request["requestedSchema"]["properties"]
    return next(iter(fields)) if [each.get("type") for each in fields.values()] == ["boolean"] else None


async def answer(request: PendingRequest, text: str) -> None:
    """Answer as somebody wrote. Raises ValueError or HubbubError for what cannot be an answer."""
    if request.kind == "sampling":
        await request.reply_text(text)
    elif text.strip().lower() == DECLINE:
        await request.decline()
    elif (name := flag(request)) is not None:
        words = {"yes": True, "no": False}
        if (word := text.strip().lower()) not in words:
            raise ValueError("please write yes or no")
        await request.accept({name: words[word]})
    else:
        await request.accept(json.loads(text))


async def serve(chat: Chat) -> None:
    """Work on what is asked, until cancelled."""

    async def handle(request: PendingRequest) -> None:
        thread = await chat.post(asked(request))
        seen = 0
        while True:
            for reply in (replies := await chat.replies(thread))[seen:]:
                try:
                    await answer(request, html.unescape(reply["text"]))
                except (ValueError, HubbubError) as error:
                    await chat.post(f"That is no answer: {plain(str(error))}", thread)
                else:
                    await chat.post(f"Thank you, <@{reply['user']}>.", thread)
                    return
            seen = max(seen, len(replies))
            await asyncio.sleep(POLL_S)

    async with hubbub_client.connect(name="chat-bot") as hub:
        # Each question goes to one worker, and stays its own until the worker ends or somebody takes it back.
        await hub.inbox.work(handle, kinds=["elicitation_form", "sampling"], capacity=20)


if __name__ == "__main__":
    with asyncio.Runner() as runner:
        runner.run(serve(Chat(os.environ["CHAT_URL"], os.environ["CHAT_TOKEN"], sys.argv[1])))
