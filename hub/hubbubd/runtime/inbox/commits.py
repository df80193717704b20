"""Commits of new requests and of answers, whose outcome may be unknown for a while.

A client that sends an answer again may reach another member, while its first attempt waits at a member that cannot
reach the database. So a refusal is final only if no earlier attempt with the same answer can still be stored.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from hubbubd.core.inbox import request_states as core
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.errors import Aborted, FailedPrecondition, ResourceExhausted, UnknownOutcome
from hubbubd.runtime.records import COMMIT_HOOK, Change, Ledger, Table

ATTEMPTS = 100
"""The most attempts to store an answer whose request keeps changing after each refusal."""


async def commit_requests(
    ledger: Ledger,
    table: Table[PendingRequest],
    new_requests: Sequence[PendingRequest],
    plan_more: Callable[[], Sequence[Change[Any]]],
    now: Callable[[], float],
) -> None:
    """Commit new requests with the changes of `plan_more`; retry while it is unknown whether the store has them.

    That may take long, but the requests wait for people anyway. If this is cancelled meanwhile, they are withdrawn.
    Raises HubError.
    """
    unknown_outcome = ""

    def plan_requests() -> tuple[None, Sequence[Change[Any]]]:
        """Plan the requests with `plan_more`; nothing if an attempt with an unknown outcome has stored them."""
        if unknown_outcome and all(table.record(request.id) is not None for request in new_requests):
            return None, ()  # they are stored, and so are the changes of the same commit
        return None, [*plan_more(), *(table.new(request.id, request) for request in new_requests)]

    try:
        while True:
            try:
                await ledger.transact(plan_requests)
                return
            except UnknownOutcome as exc:
                unknown_outcome = exc.message
                if not new_requests:  # no record would show whether the commit was stored
                    raise
    except BaseException:
        if unknown_outcome:  # they must not be opened later, when no caller waits for them
            for request in new_requests:
                ledger.change_later(table, request.id, partial(_withdraw, request, unknown_outcome, now()))
        raise


def _withdraw(request: PendingRequest, reason: str, now: float, stored: PendingRequest | None) -> PendingRequest:
    """Return the `stored` request as withdrawn; if none is stored, the `request` that was to be opened."""
    return core.withdraw(stored or request, reason, now)


async def retry_until_final(
    attempt: Callable[[], Awaitable[PendingRequest]], is_refusal_final: Callable[[], Awaitable[bool]]
) -> PendingRequest:
    """Run `attempt`, which answers a request, until it succeeds, or `is_refusal_final` is true of its refusal.

    Return the answered request. Raises as `attempt` and `is_refusal_final`, and Aborted (CONTENDED) after ATTEMPTS.
    """
    for _ in range(ATTEMPTS):
        try:
            return await attempt()
        except FailedPrecondition:
            if await is_refusal_final():
                raise
    raise Aborted("this request keeps changing; try again", reason="CONTENDED")


async def is_final(
    ledger: Ledger, table: Table[PendingRequest], request_id: str, expire_due: Callable[[], Awaitable[None]]
) -> bool:
    """Return whether the refusal of an answer stands: the store has the request as this hub has it. Raises Unavailable.

    First `expire_due` stores what is due, and changes that wait in write-behind are stored. An attempt under way at
    another member was then made from an older state, so it fails.
    """
    before = table.get(request_id)
    hook_token = COMMIT_HOOK.set(None)  # none of this is what the caller has requested
    try:
        match before.state:
            case RequestState.OPEN:
                await expire_due()
                return table.get(request_id) is before and await ledger.is_current(table, request_id)
            case RequestState.WITHDRAWN:
                await ledger.transact(lambda: (None, table.waiting_changes(request_id)))
                return table.get(request_id) is before
            case _:  # answered or expired: no state that is only in memory
                return True
    finally:
        COMMIT_HOOK.reset(hook_token)


def too_many_open_error(server: str, limit: int, usage: str) -> ResourceExhausted:
    """Return the refusal of a request beyond a server's limit; `usage` begins the message: what the server has."""
    return ResourceExhausted(
        f"{usage} already", reason="TOO_MANY_OPEN_REQUESTS", metadata={"limit": str(limit), "server": server}
    )
