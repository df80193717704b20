"""Hubs that are killed, with calls that wait for answers: what they leave behind, and for whom."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from hubbubd.config import ServerConfig
from hubbubd.core.calls.call_states import Call
from hubbubd.core.inbox.forms import Accept, ClientAnswer
from hubbubd.core.inbox.request_states import PendingRequest
from hubbubd.errors import PeerError
from hubbubd.runtime.hub import Hub
from hubbubd.store import Precondition, StoreUnavailable, Write
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.upstream.ports import Era

from .conftest import FORM, SAMPLING, FailingStore, World, open_requests, server, spec, until
from .peer import Outcome, Sent

ELICIT = {"method": "elicitation/create", "params": FORM}
SAMPLE = {"method": "sampling/createMessage", "params": SAMPLING}
ROOTS = {"method": "roots/list"}
STATE = 'opaque "é\\u0000" \U0001f600  '
DONE: Outcome = {"content": []}
YES = Accept({"name": "x"})
ACCEPTED = {"action": "accept", "content": {"name": "x"}}

PAGE = {"mode": "url", "elicitationId": "e", "message": "Sign in", "url": "https://example.org/e"}
REQUIRED = PeerError(-32042, "Sign in first", {"elicitations": [PAGE]})

Step = Outcome | PeerError | Callable[[Sent], Any]


@asynccontextmanager
async def killed(world: World, *servers: ServerConfig) -> AsyncGenerator[Hub]:
    """A hub that is killed at the end of the block: what it does from then on is not remembered."""
    async with world.hub(*servers) as hub:
        yield hub
        world.store.failures = 10**9
    world.store.failures = 0


class MortalStore(FailingStore):
    """A store that takes so many commits more; with `last_words`, the next one is kept though nobody hears of it."""

    def __init__(self, inner: SqliteStore, *, last_words: bool) -> None:
        super().__init__(inner)
        self.left: int | None = None
        self._last_words = last_words

    @property
    def dead(self) -> bool:
        return self.left is not None and self.left < 0

    async def commit(self, writes: Sequence[Write], guards: Sequence[Precondition] = ()) -> int:
        if self.left is None:
            return await super().commit(writes, guards)
        self.left -= 1
        if self.left >= 0:
            return await super().commit(writes, guards)
        if self.left == -1 and self._last_words:
            await super().commit(writes, guards)
        raise StoreUnavailable("the machine is off")


def needs(state: str | None = STATE, **questions: Any) -> Outcome:
    """An `input_required` result."""
    result = {"resultType": "input_required", "inputRequests": questions}
    return result if state is None else {**result, "requestState": state}


def script(world: World, *steps: Step, era: Era = Era.STATELESS) -> None:
    """Has the server `one` answer so, one after the other."""
    following = iter(steps)

    async def behaviour(sent: Sent) -> Outcome:
        step = next(following)
        if isinstance(step, PeerError):
            raise step
        return await step(sent) if callable(step) else step

    world.peer.behaviour = behaviour
    world.peer.era = era


async def answer(hub: Hub, request: PendingRequest, given: ClientAnswer = YES) -> None:
    await hub.inbox.answer(request.id, given, "me", answer_id=None, claim_id=None)


async def ended(hub: Hub, call_id: str = "c") -> Call:
    await until(lambda: hub.calls.get(call_id).state.ended)
    return hub.calls.get(call_id)


async def asked(world: World, *servers: ServerConfig, count: int = 1) -> list[PendingRequest]:
    """A hub makes the call `c` and is killed when so many questions are open."""
    async with killed(world, *(servers or (server(),))) as hub:
        await hub.calls.start(spec(call_id="c"), "alice")
        await until(lambda: len(open_requests(hub)) == count)
        return open_requests(hub)
