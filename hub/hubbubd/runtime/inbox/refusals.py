"""Refusals of answers that are final: no earlier attempt to give the same answer holds later.

Who sends an answer again may ask another member, while the first attempt waits for a database that is away.
"""

from collections.abc import Awaitable, Callable

from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.errors import Aborted, FailedPrecondition
from hubbubd.runtime.records import COMMIT_HOOK, Ledger, Table

ATTEMPTS = 100
"""How often an answer is tried again whose request has changed since it was refused."""


async def certainly(
    attempt: Callable[[], Awaitable[PendingRequest]], final: Callable[[], Awaitable[bool]]
) -> PendingRequest:
    """Return the outcome of an attempt to answer, and raise its refusal only if that is `final`.

    Raises what both do, and Aborted (CONTENDED).
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
    """Return whether the store has a request as it is here, right after its answer was refused. Raises Unavailable.

    What time has changed (`store_time`), and what waits in write-behind, is stored first. So an attempt that is on its
    way at another member was made from an older state, and loses.
    """
    before = table.get(request_id)
    hook = COMMIT_HOOK.set(None)  # none of this is what the caller has asked for
    try:
        match before.state:
            case RequestState.OPEN:
                await store_time()
                return table.get(request_id) is before and await ledger.confirmed(table, request_id)
            case RequestState.WITHDRAWN:
                await ledger.transact(lambda: (None, table.queued(request_id)))
                return table.get(request_id) is before
            case _:
                return True
    finally:
        COMMIT_HOOK.reset(hook)
