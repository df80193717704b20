"""Commits of new requests and of answers, whose outcome the store may not tell in time.

A client that sends an answer again may reach another member, while the first attempt waits for a database that is away.
So a refusal counts only if it is final: if no earlier attempt to give the same answer holds later.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from hubbubd.core.inbox import request_states as core
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.errors import Aborted, FailedPrecondition, ResourceExhausted, UnknownOutcome
from hubbubd.runtime.records import COMMIT_HOOK, Change, Ledger, Table

ATTEMPTS = 100
"""How often an answer is tried again whose request has changed since it was refused."""


async def commit_requests(
    ledger: Ledger,
    table: Table[PendingRequest],
    opened: Sequence[PendingRequest],
    also: Callable[[], Sequence[Change[Any]]],
    now: Callable[[], float],
) -> None:
    """Commit requests with what is `also` planned, again and again while the store does not say whether it has them.

    That may take long, but the requests wait for people anyway. If this is cancelled meanwhile, they are withdrawn.
    Raises HubError.
    """
    unknown_outcome = ""

    def plan_requests() -> tuple[None, Sequence[Change[Any]]]:
        """Plan the requests with `also`, unless an attempt whose outcome was unknown has held."""
        if unknown_outcome and all(table.record(request.id) is not None for request in opened):
            return None, ()  # they are there, and so is all that was committed with them
        return None, [*also(), *(table.new(request.id, request) for request in opened)]

    try:
        while True:
            try:
                await ledger.transact(plan_requests)
                return
            except UnknownOutcome as exc:
                unknown_outcome = exc.message
                if not opened:  # nothing would show whether the commit has held
                    raise
    except BaseException:
        if unknown_outcome:  # they must not be opened later, when nobody waits for them
            for request in opened:
                ledger.change_later(table, request.id, partial(_withdraw, request, unknown_outcome, now()))
        raise


def _withdraw(request: PendingRequest, reason: str, now: float, stored: PendingRequest | None) -> PendingRequest:
    """Return the `stored` request as withdrawn; if none is stored, the `request` that was to be opened."""
    return core.withdraw(stored or request, reason, now)


async def retry_until_final(
    attempt: Callable[[], Awaitable[PendingRequest]], final: Callable[[], Awaitable[bool]]
) -> PendingRequest:
    """Run `attempt`, which answers a request, until it succeeds or `final` says that its refusal stands.

    Return the answered request. Raises what `attempt` and `final` raise, and Aborted (CONTENDED) after ATTEMPTS.
    """
    for _ in range(ATTEMPTS):
        try:
            return await attempt()
        except FailedPrecondition:
            if await final():
                raise
    raise Aborted("this request keeps changing; try again", reason="CONTENDED")


async def is_final(
    ledger: Ledger, table: Table[PendingRequest], request_id: str, store_time: Callable[[], Awaitable[None]]
) -> bool:
    """Return whether the refusal of an answer stands: the store has the request as this hub has it. Raises Unavailable.

    What time has changed (`store_time`), and what waits in write-behind, is stored first. An attempt that is on its way
    at another member was then made from an older state, and fails.
    """
    before = table.get(request_id)
    hook = COMMIT_HOOK.set(None)  # none of this is what the caller has requested
    try:
        match before.state:
            case RequestState.OPEN:
                await store_time()
                return table.get(request_id) is before and await ledger.is_current(table, request_id)
            case RequestState.WITHDRAWN:
                await ledger.transact(lambda: (None, table.waiting_changes(request_id)))
                return table.get(request_id) is before
            case _:  # answered or expired: no state that is only in memory
                return True
    finally:
        COMMIT_HOOK.reset(hook)


def too_many_open_error(server: str, limit: int, why: str) -> ResourceExhausted:
    """Return the refusal of a request beyond a server's limit; `why` says what the server has, for the message."""
    return ResourceExhausted(
        f"{why} already", reason="TOO_MANY_OPEN_REQUESTS", metadata={"limit": str(limit), "server": server}
    )
