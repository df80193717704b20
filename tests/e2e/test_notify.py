"""`hubbub notify` with a real hub: webhooks, mail, restarts and kills."""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from hubbub_frontend.links import Links, announce_page

from .. import forks
from .conftest import BIN, LIMIT_S, POLL_S, RunningHub, environment

SECRET = "hunter2hunter2"


@pytest.fixture
async def hub(start_relay: Any) -> RunningHub:
    """A hub with a server that asks what it is asked to."""
    return await start_relay()


@pytest.fixture
def start_relay(start_hub: Any, peer_scripts: Path) -> Callable[[], Awaitable[RunningHub]]:
    """Starts such a hub; all have one data directory."""
    server = {
        "command": sys.executable,
        "args": ["-I", "-S", str(peer_scripts / "relay_server.py")],
        "max_in_flight": 50,
    }

    async def start() -> RunningHub:
        return await start_hub({"relay": server}, connected=True)

    return start


class Receiver:
    """A webhook: `came` has what it got. It answers by `statuses`, then with 204; what it is to `hold` until it may
    `go`.
    """

    def __init__(self) -> None:
        self.came: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.statuses: list[int] = []
        self.hold = False
        self.go = anyio.Event()
        self.url = ""

    async def serve(self, stream: SocketStream) -> None:
        async with stream:
            reader = BufferedByteReceiveStream(stream)
            head = (await reader.receive_until(b"\r\n\r\n", 1 << 16)).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
            self.came.append((headers, json.loads(await reader.receive_exactly(int(headers["content-length"])))))
            if self.hold:
                await self.go.wait()
            status = self.statuses.pop(0) if self.statuses else 204
            await stream.send(f"HTTP/1.1 {status} -\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())

    async def got(self, count: int) -> list[dict[str, Any]]:
        """What came, once it is so much."""
        with anyio.fail_after(LIMIT_S):
            while len(self.came) < count:
                await anyio.sleep(POLL_S)
        return [body for _, body in self.came]


@asynccontextmanager
async def listening(serve: Any) -> AsyncIterator[int]:
    """Serves connections of this machine; the port."""
    server = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with server, anyio.create_task_group() as group:
        group.start_soon(server.serve, serve)
        yield server.extra(SocketAttribute.local_port)
        group.cancel_scope.cancel()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A webhook of this test."""
    made = Receiver()
    async with listening(made.serve) as port:
        made.url = f"json://127.0.0.1:{port}/{SECRET}"
        yield made


async def ask(hub: RunningHub, message: str) -> Any:
    """Something that is asked."""
    params = {"message": message, "requestedSchema": {"type": "object", "properties": {}}}
    await hub.client.start_tool("relay", "ask", {"method": "elicitation/create", "params": params})
    opened = hub.client.inbox.watch(states=["open"])
    (asked,) = await hub.watched(opened, lambda each: each.request["message"] == message)
    return asked


async def told(notifying: Any, *events: str) -> Any:
    """The line with the first of these events."""
    return (await notifying.until(lambda line: line["event"] in events))[-1]


async def test_a_webhook_is_told_once_of_what_waits_also_by_the_next_service(
    hub: RunningHub, receiver: Receiver
) -> None:
    first = await ask(hub, "the first")
    notifying = await hub.start_hubbub("notify", receiver.url, "--after", "0", "--digest", "0")
    assert (await told(notifying, "told"))["requests"] == [first.id]
    assert await notifying.interrupt() == 0
    again = await hub.start_hubbub("notify", receiver.url, "--after", "0", "--digest", "0")
    second = await ask(hub, "the second")
    assert (await told(again, "told"))["requests"] == [second.id]
    assert await again.interrupt() == 0
    assert [body["title"] for body in await receiver.got(2)] == ["relay asks", "relay asks"]
    for (headers, body), asked in zip(receiver.came, (first, second), strict=True):
        assert f"hubbub inbox answer {asked.id}" in body["message"]
        assert "the first" not in str(body)
        assert headers["idempotency-key"]
    assert receiver.came[0][0]["idempotency-key"] != receiver.came[1][0]["idempotency-key"]


async def test_a_webhook_that_is_busy_is_tried_again_with_the_same_key(hub: RunningHub, receiver: Receiver) -> None:
    receiver.statuses = [503]
    notifying = await hub.start_hubbub("notify", receiver.url, "--after", "0")
    asked = await ask(hub, "busy")
    failed = await told(notifying, "failed")
    assert (failed["requests"], failed["again_s"]) == ([asked.id], 5.0)
    assert SECRET not in str(failed)
    assert (await told(notifying, "told"))["requests"] == [asked.id]
    assert len({headers["idempotency-key"] for headers, _ in receiver.came}) == 1
    assert len(receiver.came) == 2


async def test_what_is_answered_meanwhile_is_not_tried_again(hub: RunningHub, receiver: Receiver) -> None:
    receiver.statuses = [503]
    notifying = await hub.start_hubbub("notify", receiver.url, "--after", "0", "--digest", "0")
    asked = await ask(hub, "answered after the first attempt")
    await told(notifying, "failed")
    await asked.accept({})
    await hub.request(asked.id, state="answered")
    assert (await told(notifying, "answered"))["requests"] == [asked.id]
    assert len(receiver.came) == 1


async def test_what_somebody_claims_meanwhile_is_told_once_the_claim_is_given_up(
    hub: RunningHub, receiver: Receiver
) -> None:
    receiver.statuses = [503]
    notifying = await hub.start_hubbub("notify", receiver.url, "--after", "6", "--digest", "0")
    asked = await ask(hub, "claimed after the first attempt")
    await told(notifying, "failed")
    claimed = await hub.client.inbox.claim(asked.id, claim_id="the-claim-of-this-test")
    later = await ask(hub, "told after the second attempt would have been made")
    assert (await told(notifying, "told"))["requests"] == [later.id]
    await hub.client.inbox.release(claimed.id, "the-claim-of-this-test")
    assert (await told(notifying, "told"))["requests"] == [asked.id]
    assert len(receiver.came) == 3


async def test_a_kill_while_it_sends_is_said_and_nobody_is_told_twice(hub: RunningHub, receiver: Receiver) -> None:
    receiver.hold = True
    notifying = await hub.start_hubbub("notify", receiver.url, "--after", "0", "--digest", "0")
    cut = await ask(hub, "cut off")
    await receiver.got(1)
    os.kill(notifying.process.pid, signal.SIGKILL)
    assert await notifying.wait() == -signal.SIGKILL
    receiver.hold = False
    again = await hub.start_hubbub("notify", receiver.url, "--after", "0", "--digest", "0")
    unknown = await told(again, "unknown")
    assert unknown["requests"] == [cut.id]
    later = await ask(hub, "after the kill")
    assert (await told(again, "told"))["requests"] == [later.id]
    assert len(receiver.came) == 2


async def test_a_kill_before_it_sends_loses_nothing(hub: RunningHub, receiver: Receiver) -> None:
    notifying = await hub.start_hubbub("notify", receiver.url, "--after", "600", "--digest", "0")
    await told(notifying, "ready")
    asked = await ask(hub, "not yet due")
    os.kill(notifying.process.pid, signal.SIGKILL)
    await notifying.wait()
    again = await hub.start_hubbub("notify", receiver.url, "--after", "0", "--digest", "0")
    assert (await told(again, "told"))["requests"] == [asked.id]
    assert len(receiver.came) == 1


async def test_two_services_tell_once(hub: RunningHub, receiver: Receiver) -> None:
    both = [await hub.start_hubbub("notify", receiver.url, "--after", "0", "--digest", "0") for _ in range(2)]
    for each in both:
        await told(each, "ready")
    for number in range(3):
        await ask(hub, f"number {number}")
    with anyio.fail_after(LIMIT_S):
        while sum(_questions(body) for _, body in receiver.came) < 3:
            await anyio.sleep(POLL_S)
    for each in both:
        assert await each.interrupt() == 0
    assert sum(_questions(body) for _, body in receiver.came) == 3


def _questions(body: dict[str, Any]) -> int:
    """How many questions one notification is about."""
    return int(body["title"].split()[0]) if body["title"].endswith("wait") else 1


async def test_a_restart_of_the_hub_is_outlived_and_tells_nothing_twice(
    start_relay: Any, hub: RunningHub, receiver: Receiver
) -> None:
    notifying = await hub.start_hubbub("notify", receiver.url, "--after", "0", "--digest", "0")
    asked = await ask(hub, "before")
    assert (await told(notifying, "told"))["requests"] == [asked.id]
    await hub.terminate()
    later = await ask(await start_relay(), "after")
    assert (await told(notifying, "told"))["requests"] == [later.id]
    assert len(receiver.came) == 2


async def test_once_tells_what_is_due_and_fails_if_nobody_took_it(hub: RunningHub, receiver: Receiver) -> None:
    asked = await ask(hub, "for once")
    receiver.statuses = [500]
    while (ran := await hub.hubbub("notify", receiver.url, "--after", "0", "--once")).status == 0:
        assert receiver.came == []  # it is gathered for a second first
    assert ran.lines[-1]["event"] == "failed"
    ran = await hub.hubbub("notify", receiver.url, "--after", "0", "--once", "--digest", "0")
    assert (ran.status, ran.lines[-1]["event"], ran.lines[-1]["requests"]) == (0, "told", [asked.id])
    ran = await hub.hubbub("notify", receiver.url, "--after", "0", "--once", "--digest", "0")
    assert [line["event"] for line in ran.lines] == ["ready"]
    assert len(receiver.came) == 2


async def test_a_link_leads_to_the_page_that_runs_and_lets_in_once(hub: RunningHub, receiver: Receiver) -> None:
    with announce_page(hub.data_dir, "https://hub.example:8443"):
        asked = await ask(hub, "with a link")
        notifying = await hub.start_hubbub("notify", receiver.url, "--after", "0", "--digest", "0")
        await told(notifying, "told")
        link = (await receiver.got(1))[0]["message"].rpartition("Answer: ")[2]
        assert link.startswith("https://hub.example:8443/#login=")
        secret, _, to = link.partition("#login=")[2].partition("&to=")
        assert to == f"request/{asked.id}"
        found = Links(hub.data_dir).find(secret)
        assert found is not None
        assert (found.to, found.request) == (to, asked.id)
        assert await notifying.interrupt() == 0
        await ask(hub, "without a login")
        await hub.start_hubbub("notify", receiver.url, "--after", "0", "--digest", "0", "--no-login")
        message = (await receiver.got(2))[1]["message"]
        assert "Answer: https://hub.example:8443/#/request/req_" in message


async def test_rules_are_read_from_the_configuration_file(hub: RunningHub, receiver: Receiver, tmp_path: Path) -> None:
    file = tmp_path / "hubbub.toml"
    file.write_text(f'[notify]\nurls = "{receiver.url}"\nafter_s = 0\nservers = ["rel*"]\ncontent = true\n')
    asked = await ask(hub, "by the file")
    notifying = await hub.start_hubbub("notify", "--config", str(file))
    assert (await told(notifying, "told"))["requests"] == [asked.id]
    assert "by the file" in (await receiver.got(1))[0]["message"]
    assert await notifying.interrupt() == 0
    file.write_text("[notify]\nafter = 0\n")
    ran = await hub.hubbub("notify", "--config", str(file), receiver.url)
    assert (ran.status, ran.error["reason"]) == (2, "USAGE")
    assert "notify.after: unknown key; did you mean 'after_s'?" in ran.error["message"]


async def test_a_mail_arrives(hub: RunningHub) -> None:
    mails: list[str] = []

    async def serve(stream: SocketStream) -> None:
        """As much of SMTP (RFC 5321) as a mail needs."""
        async with stream:
            reader = BufferedByteReceiveStream(stream)
            await stream.send(b"220 sink\r\n")
            while True:
                line = await reader.receive_until(b"\r\n", 1 << 16)
                if line.upper() == b"DATA":
                    await stream.send(b"354 go on\r\n")
                    mails.append((await reader.receive_until(b"\r\n.\r\n", 1 << 20)).decode())
                    await stream.send(b"250 taken\r\n")
                elif line.upper() == b"QUIT":
                    await stream.send(b"221 bye\r\n")
                    return
                else:
                    await stream.send(b"250 ok\r\n")

    async with listening(serve) as port:
        url = f"mailto://127.0.0.1:{port}?from=hub@example.org&to=ada@example.org&smtp=127.0.0.1&mode=insecure"
        await ask(hub, "by mail")
        notifying = await hub.start_hubbub("notify", url, "--after", "0")
        assert (await told(notifying, "told", "failed"))["event"] == "told"
    (mail,) = mails
    assert "relay asks" in mail
    assert "by mail" not in mail


async def test_a_test_needs_no_hub_and_says_what_did_not_arrive(receiver: Receiver, tmp_path: Path) -> None:
    command = [str(BIN / "hubbub"), "--json", "--data-dir", str(tmp_path), "notify", "--test", receiver.url]
    receiver.statuses = [200, 401]
    good, bad = [await forks.run(command, env=environment()) for _ in range(2)]
    assert (good.returncode, json.loads(good.stdout)["sent"]) == (0, True)
    assert (bad.returncode, json.loads(bad.stdout)["sent"]) == (1, False)
    assert SECRET not in str((good.stdout, good.stderr, bad.stdout, bad.stderr))
    assert list(tmp_path.iterdir()) == []


async def test_sigterm_lets_what_is_being_sent_arrive(hub: RunningHub, receiver: Receiver) -> None:
    receiver.hold = True
    notifying = await hub.start_hubbub("notify", receiver.url, "--after", "0")
    asked = await ask(hub, "the last")
    await receiver.got(1)
    notifying.process.terminate()
    receiver.go.set()
    assert (await told(notifying, "told"))["requests"] == [asked.id]
    assert await notifying.wait() == 0


async def test_a_service_that_never_ends_its_answer_does_not_keep_the_command(hub: RunningHub) -> None:
    began = anyio.Event()

    async def serve(stream: SocketStream) -> None:
        """Send a header that has no end, a little at a time: no read ever times out."""
        async with stream:
            await stream.receive()
            began.set()
            await stream.send(b"HTTP/1.1 200 -\r\nX: ")
            with suppress(anyio.BrokenResourceError):
                while True:
                    await stream.send(b"x")
                    await anyio.sleep(POLL_S)

    async with listening(serve) as port:
        notifying = await hub.start_hubbub("notify", f"json://127.0.0.1:{port}", "--after", "0")
        asked = await ask(hub, "endless")
        with anyio.fail_after(LIMIT_S):
            await began.wait()
        assert await notifying.interrupt() == 0
    ran = await hub.hubbub("notify", f"json://127.0.0.1:{port}", "--after", "0", "--once")
    assert [(line["event"], line.get("requests")) for line in ran.lines[1:]] == [("unknown", [asked.id])]
