"""New pending requests on their way into the store."""

from collections.abc import Callable, Sequence
from typing import Any

from hubbubd.core.inbox import request_states as core
from hubbubd.core.inbox.request_states import PendingRequest
from hubbubd.errors import UnknownOutcome
from hubbubd.runtime.records import Change, Ledger, Table


async def put(
    ledger: Ledger,
    table: Table[PendingRequest],
    opened: Sequence[PendingRequest],
    also: Callable[[], Sequence[Change[Any]]],
    now: Callable[[], float],
) -> None:
    """Commit requests with what is `also` planned, for as long as the store does not say whether it has them.

    They wait for people anyway. If this is cancelled meanwhile they are asked nobody. Raises HubError.
    """
    unsure = ""

    def plan() -> tuple[None, Sequence[Change[Any]]]:
        if unsure and all(table.record(request.id) is not None for request in opened):
            return None, ()  # they are there, and so is all that was committed with them
        return None, [*also(), *(table.new(request.id, request) for request in opened)]

    try:
        while True:
            try:
                await ledger.transact(plan)
                return
            except UnknownOutcome as exc:
                unsure = exc.message
                if not opened:
                    raise
    except BaseException:
        if unsure:  # they must not be opened later, when nobody waits for them
            for r in opened:
                ledger.later(table, r.id, lambda there, r=r: core.withdraw(there or r, unsure, now()))
        raise
