"""Watches the inbox, and tells people of what waits for them."""

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field
from datetime import tzinfo
from typing import Any, Literal, ParamSpec, TypeVar, cast

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from hubbub_client.data.records import PendingRequest
from hubbub_client.data.watch_events import Removed, Reset, Synced, Upsert
from hubbub_client.hub import Hub
from hubbub_notify.plan import GATHER_S, Plan, remembered_s
from hubbub_notify.rules import Rules
from hubbub_notify.sent_log import State
from hubbub_notify.target import Target
from hubbub_notify.text import notice, place

P = ParamSpec("P")
R = TypeVar("R")

PAUSES_S = (5.0, 15.0, 60.0, 120.0, 300.0, 600.0, 600.0, 600.0, 600.0, 600.0, 600.0)
"""Pauses before each attempt after the first, seconds."""

GRACE_S = 10.0
"""How long attempts under way may still take when the service ends, seconds."""

LONGEST_SLEEP_S = 60.0
"""A wall clock that was set is noticed after so many seconds."""

SHORTEST_SLEEP_S = 0.01
NOBODY_SLEEP_S = 1.0
"""How often it is looked whether there is somebody to tell by now, seconds."""

Event = Literal["told", "failed", "gave_up", "unknown", "answered"]


@dataclass(frozen=True, slots=True)
class News:
    """What the service did. `target` is a name without secrets, `why` a reason in words."""

    event: Event
    requests: tuple[str, ...]
    target: str = ""
    why: str = ""
    again_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it for programs; `again_s` is the pause before the next attempt, seconds."""
        return {
            "event": self.event,
            "requests": [*self.requests],
            "target": self.target or None,
            "why": self.why or None,
            "again_s": self.again_s,
        }


AnswerAt = Callable[[Sequence[PendingRequest], str], Awaitable[str]]
"""Returns where pending requests are answered: a link or a command. It gets them, and their place in the page."""


@dataclass(slots=True)
class Notifier:
    """One service. `targets` returns whom to tell now; `say` gets what was done."""

    rules: Rules
    targets: Callable[[], Sequence[Target]]
    state: State
    answer_at: AnswerAt
    say: Callable[[News], None]
    _: KW_ONLY
    zone: tzinfo | None = None
    clock: Callable[[], float] = time.time
    _plan: Plan = field(init=False)
    _changed: anyio.Event = field(init=False, default_factory=anyio.Event)
    _stopping: anyio.Event = field(init=False, default_factory=anyio.Event)
    _on_disk: set[str] = field(init=False, default_factory=set[str])
    _one: anyio.CapacityLimiter = field(init=False, default_factory=lambda: anyio.CapacityLimiter(1))

    async def run(self, hub: Hub, stop: anyio.Event | None = None, *, once: bool = False) -> None:
        """Work until stopped, and let attempts end within GRACE_S; with `once`, tell of what is due now, and end.

        Raises HubbubError if the hub refuses, StateProblem if the file cannot be used.
        """
        await self._begin()
        try:
            async with anyio.create_task_group() as sending:
                async with anyio.create_task_group() as deciding:
                    deciding.start_soon(self._end, stop or anyio.Event(), deciding.cancel_scope)
                    if not once:
                        deciding.start_soon(self._decide, sending)
                    await self._watch(hub, once=once)
                    # A watch ends only with `once`, which waits for no others.
                    await self._tell(sending, (), gather_s=0.0)
                    deciding.cancel_scope.cancel()
                if once and not self._stopping.is_set():
                    return
                sending.cancel_scope.deadline = anyio.current_time() + GRACE_S
        except BaseExceptionGroup as group:
            raise _first(group) from None

    async def _begin(self) -> None:
        """Read what earlier services did, and say what was cut off."""
        keys = {each.key for each in self.targets()}
        if cut := await self._on_file(self.state.cut_off, keys):
            self.say(News("unknown", tuple(cut), why="the service was ended while it sent"))
        self._on_disk = await self._on_file(self.state.told, keys)
        since_s = self.clock() - remembered_s(self.rules)
        self._plan = Plan(self.rules, await self._on_file(self.state.recent, since_s))

    async def _end(self, stop: anyio.Event, scope: anyio.CancelScope) -> None:
        await stop.wait()
        self._stopping.set()
        scope.cancel()

    async def _watch(self, hub: Hub, *, once: bool) -> None:
        there: set[str] = set()
        stale: set[str] = set()
        async with aclosing(hub.inbox.watch(states=["open"])) as events:
            async for event in events:
                match event:
                    case Upsert(record=request):
                        there.add(request.id)
                        stale.discard(request.id)
                        self._plan.see(request)
                        if request.id in self._on_disk and self._plan.has(request.id):
                            self._plan.told([request.id])
                    case Removed(id=id_):
                        there.discard(id_)
                        self._plan.gone(id_)
                    case Reset():
                        stale = set(there)
                    case Synced():
                        for id_ in stale:
                            there.discard(id_)
                            self._plan.gone(id_)
                        stale = set[str]()
                        # Also what the rules leave out is there: another service may tell of it.
                        await self._on_file(self.state.forget, set(there))
                        if once:
                            return
                    case _:
                        continue
                self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _decide(self, sending: TaskGroup) -> None:
        """Tell of what is due, forever."""
        while True:
            changed = self._changed
            await self._tell(sending, PAUSES_S)
            moment = self._plan.moment()
            pause_s = LONGEST_SLEEP_S
            if moment is not None:
                shortest = SHORTEST_SLEEP_S if self.targets() else NOBODY_SLEEP_S
                pause_s = min(max(moment - self.clock(), shortest), LONGEST_SLEEP_S)
            with anyio.move_on_after(pause_s):
                await changed.wait()

    async def _tell(self, sending: TaskGroup, pauses: Sequence[float], gather_s: float = GATHER_S) -> None:
        targets = self.targets()
        if not targets or not (due := self._plan.tell(self.clock(), gather_s)):
            return
        await self._on_file(self.state.noticed, self.clock())
        for target in targets:
            sending.start_soon(self._send, target, due, pauses)

    async def _send(self, target: Target, requests: Sequence[PendingRequest], pauses: Sequence[float]) -> None:
        """Send a notification to a target, again after failures, while something of it is open."""
        id_ = secrets.token_hex(8)
        left, answer_at = list(requests), dict[str, str]()
        for pause_s in (*pauses, None):
            left = [each for each in left if self._plan.has(each.id)]
            if not left:
                return self.say(News("answered", tuple(each.id for each in requests), target.name))
            # Whoever is answering one is not disturbed by a repetition; once the claim is given up, it is told anew.
            left = [each for each in left if not self._plan.hold(each.id)]
            begun = await self._on_file(self.state.begin, id_, target.key, [each.id for each in left])
            left = [each for each in left if each.id in begun]
            if not left:  # another service has told it, or each is being answered
                return None
            to = place(left)
            if to not in answer_at:
                answer_at[to] = await self.answer_at(left, to)
            words = notice(id_, left, answer_at[to], content=self.rules.content, zone=self.zone)
            said, why = await target.send(words)
            end = "gave_up" if said == "failed" and pause_s is None and pauses else said
            with anyio.CancelScope(shield=True):  # what has been sent is written down, whatever ends meanwhile
                await self._on_file(self.state.end, id_, target.key, end)
            again_s = pause_s if end == "failed" else None
            self.say(News("told" if end == "sent" else end, tuple(begun), target.name, why, again_s))
            if again_s is None or await self._stopped_within(again_s):
                return None
        return None

    async def _stopped_within(self, pause_s: float) -> bool:
        with anyio.move_on_after(pause_s):
            await self._stopping.wait()
        return self._stopping.is_set()

    async def _on_file(self, work: Callable[P, R], *given: P.args, **named: P.kwargs) -> R:
        """Use the file in a thread, to the end, one at a time."""
        return await anyio.to_thread.run_sync(lambda: work(*given, **named), limiter=self._one)


def _first(error: BaseException) -> BaseException:
    """Return the first exception of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
