"""Frontends that go on whatever becomes of their hub: they call, answer the same questions, claim, fetch and watch."""

import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import anyio
from anyio.abc import TaskGroup

import hubbub_client
from hubbub_client import FailedPrecondition, HubbubError, NotFound, Removed, Reset, Upsert

from .crash_model import Attempt, Lease, Memory, Seen, Told

PAUSE_S = 0.1
OPEN_CALLS = 4
"""Calls that one person has under way at once."""

Calls = tuple[tuple[str, str, Callable[[], dict[str, Any]]], ...]
"""Servers, their tools, and what makes arguments."""

CALLS: Calls = (
    ("asking", "ask", dict),
    ("plain", "ask", dict),
    ("tasks", "start", lambda: {"kind": "elicitation", "ttl": 3_600_000}),
    ("tasks", "start", lambda: {"kind": "sampling", "ttl": 3_600_000}),
    ("mrtr", "three_forms", dict),
    ("mrtr", "two_rounds", dict),
    ("ext", "greet", dict),
    ("family", "echo", dict),
)


def ended_call(error: HubbubError) -> bool:
    """Whether an error is the end of a call, and not of the way to the hub."""
    return "call_id" in error.metadata


class Person:
    """One frontend with a connection of its own."""

    def __init__(
        self,
        name: str,
        client: hubbub_client.Hub,
        memory: Memory,
        seed: str,
        *,
        calls: Calls = CALLS,
        open_calls: int = OPEN_CALLS,
        pace: float = 1.0,
        crowd: float = 1.0,
    ) -> None:
        """`pace` is how many times as long the pauses between calls are.

        One of a `crowd` so many times as large as a few people does that much less, so that all together do as much.
        """
        self.name = name
        self.client = client
        self.memory = memory
        self.random = random.Random(f"{seed}/{name}")
        self.hasty = False
        self._calls = calls
        self._open_calls = open_calls
        self._crowd = crowd
        self._pace = pace
        self._answering: set[str] = set()

    # Calls

    async def call_forever(self) -> None:
        """Starts calls, with a few under way at once."""
        places = anyio.Semaphore(self._open_calls)
        async with anyio.create_task_group() as calls:
            while True:
                await places.acquire()
                server, tool, arguments = self.random.choice(self._calls)
                calls.start_soon(self._call, places, server, tool, arguments())
                await anyio.sleep(self.random.uniform(0, PAUSE_S * self._pace * self._crowd))

    async def _call(self, places: anyio.Semaphore, server: str, tool: str, arguments: dict[str, Any]) -> None:
        call_id = self.memory.new_call(self.name, server)
        waits = self.random.random() < 0.5
        try:
            handle = await self._persist(lambda: self.client.start_tool(server, tool, arguments, call_id=call_id))
        except HubbubError:  # SERVER_NOT_CONNECTED and the like refuse a call
            pass
        else:
            self.memory.calls[call_id].acknowledged = True
            if waits:
                await self._wait(handle)
        finally:
            places.release()

    async def _wait(self, handle: hubbub_client.CallHandle[Any]) -> None:
        try:
            self.memory.calls[handle.id].result = (await handle.wait()).result
        except NotFound as error:
            self.memory.wrong(f"{handle.id}: was acknowledged, and {self.name} gets: {error}")

    async def _persist(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        """Tries until the hub itself says yes or no; the id makes that one call. Raises what it says."""
        while True:
            try:
                return await attempt()
            except HubbubError as error:
                lost = not ended_call(error) and not isinstance(error, (FailedPrecondition, NotFound))
                if not lost:
                    raise
            await anyio.sleep(PAUSE_S)

    # Answers

    async def answer_forever(self) -> None:
        """Answers the questions that the watch shows, at the same time as everybody else."""
        async with anyio.create_task_group() as answers, aclosing(self.client.inbox.watch(states=["open"])) as news:
            async for event in news:
                if isinstance(event, Upsert):
                    self.consider(event.record, answers)

    async def look_again_forever(self) -> None:
        """Answers questions that nobody wanted at first."""
        async with anyio.create_task_group() as answers:
            while True:
                await anyio.sleep(self.random.uniform(0, 20 * PAUSE_S * self._crowd))
                await self._quietly(lambda: self._look_again(answers))

    async def _look_again(self, answers: TaskGroup) -> None:
        for request in await self.client.inbox.list(states=["open"]):
            self.consider(request, answers)

    def consider(self, request: Any, answers: TaskGroup) -> None:
        """Answers a question, perhaps, unless it is at it."""
        if request.id not in self._answering and (self.hasty or self.random.random() < 0.7 / self._crowd):
            self._answering.add(request.id)
            answers.start_soon(self._answer, request)

    async def _answer(self, request: Any) -> None:
        try:
            await anyio.sleep(self.random.uniform(0, 2 * PAUSE_S))
            lease = await self._claim(request) if self.random.random() < 0.3 else None
            if lease and self.random.random() < 0.3:
                return  # lets it lapse
            await self._try(request, lease[1] if lease else None, lease[0] if lease else None)
        finally:
            self._answering.discard(request.id)

    async def _claim(self, request: Any) -> tuple[Lease, str] | None:
        try:
            claimed = await self.client.inbox.claim(request.id, ttl_s=self.random.uniform(0.5, 3))
        except HubbubError:
            return None
        now, claim = time.time(), claimed.claim
        assert claim is not None
        assert claim.id is not None
        assert claim.expires_at is not None
        lease = Lease(request.id, self.name, now, claim.expires_at.timestamp())
        self.memory.leases.append(lease)
        await anyio.sleep(self.random.uniform(0, 2 * PAUSE_S))
        if self.random.random() < 0.2:
            lease.until = min(lease.until, time.time())
            await self._quietly(lambda: self.client.inbox.release(request.id, claim.id or ""))
            return None
        return lease, claim.id

    async def _try(self, request: Any, claim_id: str | None, lease: Lease | None) -> None:
        given, attempt = self._given(request)
        while True:
            attempt.sent += 1
            try:
                record = await self.client.inbox.answer(
                    request.id, **given, answer_id=attempt.answer_id, claim_id=claim_id
                )
            except (FailedPrecondition, NotFound) as error:
                self._refused(attempt, error)
                return
            except HubbubError:
                if self.random.random() < 0.2 and not self.hasty:
                    return  # never learns what became of it
            else:
                attempt.told, attempt.told_at = Told.ACCEPTED, time.time()
                if record.answered_by != self.name:
                    self.memory.wrong(f"{request.id}: {self.name} hears that {record.answered_by} has answered")
                if lease:
                    lease.until = min(lease.until, attempt.told_at)
                return
            await anyio.sleep(self.random.uniform(0, PAUSE_S))

    def _refused(self, attempt: Attempt, error: HubbubError) -> None:
        attempt.told = Told.REFUSED
        self.memory.counts[f"refused {error.reason}"] += 1
        if isinstance(error, NotFound):
            self.memory.wrong(f"{attempt.request_id}: was seen and is not found")

    def _given(self, request: Any) -> tuple[dict[str, Any], Attempt]:
        """An answer that fits the question, with a value that no other answer has."""
        if request.kind == "sampling":
            attempt = self.memory.attempt(request.id, self.name, False, time.time())
            return {"text": attempt.value}, attempt
        ((name, schema),) = request.request["requestedSchema"]["properties"].items()
        attempt = self.memory.attempt(request.id, self.name, schema["type"] == "integer", time.time())
        return {"accept": {name: attempt.value}}, attempt

    async def _quietly(self, step: Callable[[], Awaitable[Any]]) -> None:
        try:
            await step()
        except HubbubError:
            return

    # Tasks

    async def fetch_forever(self) -> None:
        """Has the server fetch the results of its tasks, whichever come to an end."""
        async with aclosing(self.client.tasks.watch(role="receiver")) as news:
            async for event in news:
                if isinstance(event, Upsert):
                    self.memory.tasks.add(event.record.id)
                    if event.record.status == "completed" and self.random.random() < 0.5:
                        task_id = event.record.id
                        await self._quietly(lambda: self.client.call_tool("tasks", "fetch", {"task_id": task_id}))  # noqa: B023


async def follow(news: AsyncGenerator[Any, None], seen: Seen) -> None:
    """Keeps what a watch shows, for ever."""
    async with aclosing(news) as events:
        async for event in events:
            match event:
                case Upsert(record=record):
                    seen.records[record.id] = record
                case Removed(id=gone):
                    seen.records.pop(gone, None)
                case Reset():
                    seen.resets += 1
                    seen.records.clear()
                case _:
                    pass
