"""A webhook whose endpoint is dead, silent, slow or does not want it: bounded, and said."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from hubbub_cli.notices import webhook

from .agent_requests import request

LIMIT_S = 60
ATTEMPTS = 1 + len(webhook.RETRY_PAUSES_S)
REQUEST = request()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many attempts as ever, with next to no time between them."""
    monkeypatch.setattr(webhook, "RETRY_PAUSES_S", [0.001] * len(webhook.RETRY_PAUSES_S))
    monkeypatch.setattr(webhook, "TIMEOUT_S", LIMIT_S)


@asynccontextmanager
async def endpoint(serve: Any) -> AsyncIterator[tuple[str, list[SocketStream]]]:
    """Where connections are served so; and the connections."""
    came: list[SocketStream] = []

    async def accept(stream: SocketStream) -> None:
        came.append(stream)
        async with stream:
            try:
                await serve(stream)
            except (anyio.BrokenResourceError, anyio.EndOfStream):
                return

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, accept)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/hook", came
        group.cancel_scope.cancel()


async def deliver(url: str) -> None:
    with anyio.fail_after(LIMIT_S):
        async with webhook.Webhook(url, None) as hook:
            await hook.deliver(REQUEST)


async def test_an_endpoint_where_nobody_listens_is_given_up_and_said(
    free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    await deliver(f"http://127.0.0.1:{free_port}/hook")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("req_1: the webhook did not take it: ConnectError")


async def silent(_: SocketStream) -> None:
    await anyio.sleep_forever()


async def dripping(stream: SocketStream) -> None:
    await stream.send(b"HTTP/1.1 204 -\r\n")
    while True:
        await stream.send(b"X-More: 1\r\n")
        await anyio.sleep(0.01)


@pytest.mark.parametrize("serve", [silent, dripping])
async def test_an_endpoint_that_comes_to_no_end_of_its_answer_is_tried_five_times(
    serve: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "TIMEOUT_S", 0.2)
    async with endpoint(serve) as (url, came):
        await deliver(url)
        with anyio.fail_after(LIMIT_S):
            while len(came) < ATTEMPTS:  # who is given up so soon may not have been accepted yet
                await anyio.sleep(0.001)
    assert len(came) == ATTEMPTS == 5
    assert capsys.readouterr().err == "req_1: the webhook did not take it: no answer within 0.2 s\n"


@pytest.mark.parametrize(("status", "attempts"), [(503, ATTEMPTS), (429, ATTEMPTS), (400, 1), (307, 1), (200, 1)])
async def test_only_what_may_pass_is_tried_again(
    status: int, attempts: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async def answer(stream: SocketStream) -> None:
        await stream.receive()
        await stream.send(b"HTTP/1.1 %d -\r\nLocation: /x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)

    async with endpoint(answer) as (url, came):
        await deliver(url)
    assert len(came) == attempts
    assert (f"HTTP status {status}" in capsys.readouterr().err) == (status != 200)
