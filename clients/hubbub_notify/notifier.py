"""Watches the inbox, and notifies people of the requests that wait for them."""

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
from hubbub_notify.plan import GATHER_S, Plan, count_history_s
from hubbub_notify.rules import Rules
from hubbub_notify.sent_log import SentLog
from hubbub_notify.target import Target
from hubbub_notify.text import compose_notice, find_page_view

P = ParamSpec("P")
R = TypeVar("R")

PAUSES_S = (5.0, 15.0, 60.0, 120.0, 300.0, 600.0, 600.0, 600.0, 600.0, 600.0, 600.0)
"""Pauses before each attempt after the first, seconds."""

GRACE_S = 10.0
"""How long attempts under way may still take when the service ends, seconds."""

MAX_SLEEP_S = 60.0
"""A wall clock that was set is noticed after so many seconds."""

MIN_SLEEP_S = 0.01
NO_TARGET_SLEEP_S = 1.0
"""Seconds between looks whether there is a target, while something is due and there is none."""

Event = Literal["told", "failed", "gave_up", "unknown", "answered"]


@dataclass(frozen=True, slots=True)
class News:
    """One report of the service. `target` is a name without secrets, `why` a reason in words."""

    event: Event
    requests: tuple[str, ...]
    target: str = ""
    why: str = ""
    again_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the news as JSON values; `again_s` is the pause before the next attempt, seconds."""
        return {
            "event": self.event,
            "requests": [*self.requests],
            "target": self.target or None,
            "why": self.why or None,
            "again_s": self.again_s,
        }


FindAnswerPlace = Callable[[Sequence[PendingRequest], str], Awaitable[str]]
"""Returns where a person answers pending requests: a link or a command. Its second argument is their page view."""


@dataclass(slots=True)
class Notifier:
    """One service. `targets` returns the targets to notify now; `report` is called with each report of the service."""

    rules: Rules
    targets: Callable[[], Sequence[Target]]
    state: SentLog
    find_answer_place: FindAnswerPlace
    report: Callable[[News], None]
    _: KW_ONLY
    zone: tzinfo | None = None
    clock: Callable[[], float] = time.time
    _plan: Plan = field(init=False)
    _plan_changed: anyio.Event = field(init=False, default_factory=anyio.Event)
    _stopping: anyio.Event = field(init=False, default_factory=anyio.Event)
    _notified_before: set[str] = field(init=False, default_factory=set[str])
    _file_limiter: anyio.CapacityLimiter = field(init=False, default_factory=lambda: anyio.CapacityLimiter(1))

    async def run(self, hub: Hub, stop: anyio.Event | None = None, *, once: bool = False) -> None:
        """Notify until stopped, and let attempts end within GRACE_S; with `once`, notify only of what is due now.

        Raises HubbubError if the hub refuses, SentLogProblem if the log of what was sent cannot be used.
        """
        await self._load_earlier_attempts()
        try:
            # Attempts have a task group of their own: those under way may go on when all else is cancelled.
            async with anyio.create_task_group() as send_tasks:
                async with anyio.create_task_group() as plan_tasks:
                    plan_tasks.start_soon(self._wait_for_stop, stop or anyio.Event(), plan_tasks.cancel_scope)
                    if not once:
                        plan_tasks.start_soon(self._notify_forever, send_tasks)
                    await self._watch_inbox(hub, once=once)
                    # The watch has ended, as it does only with `once`: send now, and wait for no further requests.
                    await self._send_due(send_tasks, (), gather_s=0.0)
                    plan_tasks.cancel_scope.cancel()
                if once and not self._stopping.is_set():
                    return  # once all attempts have ended, however late: GRACE_S is for a service that is stopped
                send_tasks.cancel_scope.deadline = anyio.current_time() + GRACE_S
        except BaseExceptionGroup as group:
            raise _find_first_exception(group) from None

    async def _load_earlier_attempts(self) -> None:
        """Read the attempts of earlier services from the log, report those that were cut off, and make the plan."""
        keys = {target.key for target in self.targets()}
        if cut_off := await self._run_in_thread(self.state.mark_cut_off, keys):
            self.report(News("unknown", tuple(cut_off), why="the service was ended while it sent"))
        self._notified_before = await self._run_in_thread(self.state.list_notified_requests, keys)
        since_s = self.clock() - count_history_s(self.rules)
        self._plan = Plan(self.rules, await self._run_in_thread(self.state.list_notice_times, since_s))

    async def _wait_for_stop(self, stop: anyio.Event, scope: anyio.CancelScope) -> None:
        """Wait for `stop`, then cancel the scope, and end the attempts that pause before their next try."""
        await stop.wait()
        self._stopping.set()
        scope.cancel()

    async def _watch_inbox(self, hub: Hub, *, once: bool) -> None:
        """Update the plan with each change of the inbox; with `once`, return when the plan has all open requests."""
        open_ids: set[str] = set()
        # Open requests that the snapshot after a Reset has not named yet. Those left at its end are not open any more.
        unconfirmed: set[str] = set()
        async with aclosing(hub.inbox.watch(states=["open"])) as events:
            async for event in events:
                match event:
                    case Upsert(record=request):
                        open_ids.add(request.id)
                        unconfirmed.discard(request.id)
                        self._plan.update(request)
                        if request.id in self._notified_before and self._plan.is_wanted(request.id):
                            self._plan.mark_notified([request.id])
                    case Removed(id=id_):
                        open_ids.discard(id_)
                        self._plan.remove(id_)
                    case Reset():
                        unconfirmed = set(open_ids)
                    case Synced():
                        for id_ in unconfirmed:
                            open_ids.discard(id_)
                            self._plan.remove(id_)
                        unconfirmed = set[str]()
                        # `open_ids` also has what the rules leave out: another service may notify of it.
                        await self._run_in_thread(self.state.delete_old, set(open_ids))
                        if once:
                            return
                    case _:
                        continue
                self._wake_up()

    def _wake_up(self) -> None:
        """Have `_notify_forever` look at the plan again, since it has changed."""
        self._plan_changed.set()
        self._plan_changed = anyio.Event()

    async def _notify_forever(self, send_tasks: TaskGroup) -> None:
        """Send the requests that are due, then wait until the next one is due or the plan changes; forever."""
        while True:
            plan_changed = self._plan_changed  # taken before the sending, to notice a change meanwhile
            await self._send_due(send_tasks, PAUSES_S)
            next_at = self._plan.find_next_time()
            pause_s = MAX_SLEEP_S
            if next_at is not None:
                min_sleep_s = MIN_SLEEP_S if self.targets() else NO_TARGET_SLEEP_S
                pause_s = min(max(next_at - self.clock(), min_sleep_s), MAX_SLEEP_S)
            with anyio.move_on_after(pause_s):
                await plan_changed.wait()

    async def _send_due(self, send_tasks: TaskGroup, pauses_s: Sequence[float], gather_s: float = GATHER_S) -> None:
        """Start to send the requests that are due now to each target, and record in the log that a notice was made.

        Do nothing without a target. `pauses_s`: seconds before each repeated attempt. `gather_s`: seconds that the
        first request that is due waits for others, so that people are notified of them together.
        """
        targets = self.targets()
        if not targets or not (due := self._plan.pop_due(self.clock(), gather_s)):
            return
        await self._run_in_thread(self.state.record_notice, self.clock())
        for target in targets:
            send_tasks.start_soon(self._send, target, due, pauses_s)

    async def _send(self, target: Target, requests: Sequence[PendingRequest], pauses_s: Sequence[float]) -> None:
        """Notify a target of requests in one notification, and report each attempt.

        After a failure, wait for the next of the pauses and send again, with the requests that are still open.
        """
        notice_id = secrets.token_hex(8)
        remaining = list(requests)
        place_by_view: dict[str, str] = {}
        for pause_s in (*pauses_s, None):
            remaining = [request for request in remaining if self._plan.is_wanted(request.id)]
            if not remaining:
                self.report(News("answered", tuple(request.id for request in requests), target.name))
                return
            # A claim means that somebody is answering: no repetition disturbs them. If the claim is given up, the
            # request is due again.
            remaining = [request for request in remaining if not self._plan.requeue_if_claimed(request.id)]
            ids = [request.id for request in remaining]
            attempted = await self._run_in_thread(self.state.begin_attempt, notice_id, target.key, ids)
            remaining = [request for request in remaining if request.id in attempted]
            if not remaining:  # another service has sent it, or each is being answered
                return
            view = find_page_view(remaining)
            if view not in place_by_view:
                place_by_view[view] = await self.find_answer_place(remaining, view)
            notice = compose_notice(
                notice_id, remaining, place_by_view[view], content=self.rules.content, zone=self.zone
            )
            outcome, why = await target.send(notice)
            # Without pauses (`once`) the outcome stays `failed`, so that the next run tries again.
            if outcome == "failed" and pause_s is None and pauses_s:
                outcome = "gave_up"
            with anyio.CancelScope(shield=True):  # a sent notice must be logged, even if the service ends now
                await self._run_in_thread(self.state.end_attempt, notice_id, target.key, outcome)
            again_s = pause_s if outcome == "failed" else None
            self.report(News("told" if outcome == "sent" else outcome, tuple(attempted), target.name, why, again_s))
            if again_s is None or await self._is_stopped_within(again_s):
                return

    async def _is_stopped_within(self, pause_s: float) -> bool:
        """Wait `pause_s` seconds, or until the service is stopped; return whether the service is stopped."""
        with anyio.move_on_after(pause_s):
            await self._stopping.wait()
        return self._stopping.is_set()

    async def _run_in_thread(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a method of the sent log in a thread, one call at a time, and return its result: the log blocks."""
        return await anyio.to_thread.run_sync(lambda: work(*args, **kwargs), limiter=self._file_limiter)


def _find_first_exception(error: BaseException) -> BaseException:
    """Return the first exception of a group, also of a group within it; any other exception as it is."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
