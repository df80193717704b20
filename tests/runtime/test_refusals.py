"""An answer that is refused is not accepted later: an earlier attempt, which another member still makes, loses."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio.lowlevel
import pytest

from hubbubd.config import HubSettings
from hubbubd.core.audit import OK, AuditFilter, AuditKind
from hubbubd.core.inbox import request_states as core
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import PendingRequest, RequestEventType, RequestState
from hubbubd.errors import FailedPrecondition, Unavailable
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.inbox.commits import is_final
from hubbubd.runtime.oversight.audit import Attempt
from hubbubd.runtime.ownership import SoleOwnership
from hubbubd.runtime.wiring import load_tables
from hubbubd.store import OutcomeUnknown, Precondition, Write, WriteConflict
from hubbubd.telemetry.meter import OFF

from .conftest import FORM, question, settle
from .fleet import Members, Running
from .test_fleet import another, http, of, owner

Commit = tuple[Sequence[Write], Sequence[Precondition]]
ANN = {"by": "ann", "answer_id": "a"}


@contextmanager
def away(member: Running, monkeypatch: pytest.MonkeyPatch) -> Generator[list[Commit]]:
    """Yield the commits that a member makes during the block; the database may have them, and has not answered."""
    commits: list[Commit] = []

    async def commit(writes: Sequence[Write], guards: Sequence[Precondition] = ()) -> int:
        commits.append((writes, guards))
        raise OutcomeUnknown("no answer yet")

    with monkeypatch.context() as patched:
        patched.setattr(member.store, "commit", commit)
        yield commits


async def asked(fleet: Members, **options: object) -> tuple[Running, Running, PendingRequest]:
    """The owner of a server that has asked, another member, and the question, of which both know."""
    await of(fleet, "a", "b", servers=(http(**options),))
    here = owner(fleet)
    there = another(fleet, here)
    fleet.peers["one"].link.ask("elicitation/create", FORM)
    request = await question(there.hub)
    await settle()
    return here, there, request


async def claimed(hub: Hub, request: PendingRequest, by: str, ttl_s: float) -> str:
    claim = (await hub.inbox.claim(request.id, by, ttl_s)).claim
    assert claim
    assert claim.id
    await settle()
    return claim.id


async def answer(hub: Hub, request: PendingRequest, claim_id: str | None) -> PendingRequest:
    return await hub.inbox.answer(request.id, Accept({"name": "x"}), **ANN, claim_id=claim_id)


async def refused(hub: Hub, request: PendingRequest, claim_id: str | None) -> str:
    with pytest.raises(FailedPrecondition) as refusal:
        await answer(hub, request, claim_id)
    return refusal.value.reason


async def unanswered(fleet: Members, member: Running, request: PendingRequest, claim_id: str | None) -> Commit:
    """The commit of an answer at a member, of which nobody knows whether it was kept; two seconds later."""
    with pytest.MonkeyPatch.context() as patched, away(member, patched) as commits, pytest.raises(Unavailable):
        await answer(member.hub, request, claim_id)
    fleet.database.away = True  # so nobody stores what time does
    await settle(2.5)
    fleet.database.away = False
    [commit] = commits
    return commit


@pytest.mark.parametrize(
    ("answer_s", "claim_s", "why"), [(2, None, "REQUEST_EXPIRED"), (2, 60, "REQUEST_EXPIRED"), (60, 2, "CLAIM_LOST")]
)
async def test_an_answer_that_is_refused_for_the_time_cannot_hold_later(
    fleet: Members, answer_s: int, claim_s: int | None, why: str
) -> None:
    here, there, request = await asked(fleet, answer_timeout_s=answer_s)
    claim_id = None if claim_s is None else await claimed(there.hub, request, "ann", claim_s)
    first = await unanswered(fleet, there, request, claim_id)
    assert await refused(here.hub, request, claim_id) == why
    with pytest.raises(WriteConflict):
        await there.store.commit(*first)


async def test_what_is_heard_before_an_answer_is_refused_is_judged_in_the_same_way(fleet: Members) -> None:
    here, there, request = await asked(fleet)
    bobs = await claimed(there.hub, request, "bob", 60)
    here.store.held = True  # it goes on to believe in that claim
    await there.hub.inbox.release(request.id, bobs)
    anns = await claimed(there.hub, request, "ann", 2)
    first = await unanswered(fleet, there, request, anns)
    believed = here.hub.inbox.get(request.id).claim
    assert believed
    assert believed.by == "bob"
    assert await refused(here.hub, request, anns) == "CLAIM_LOST"
    with pytest.raises(WriteConflict):
        await there.store.commit(*first)


@pytest.mark.parametrize("holds", [False, True], ids=["the withdrawal", "an answer that was first"])
async def test_a_withdrawal_that_waits_to_be_written_is_written_before_an_answer_is_refused_for_it(
    fleet: Members, holds: bool
) -> None:
    here, there, request = await asked(fleet)
    settings = HubSettings(data_dir=Path("unused"))
    # As the owner has it, and nobody writes it.
    ledger, tables = await load_tables(here.store, settings, OFF, SoleOwnership(), here.hub.clock)
    first = await unanswered(fleet, there, request, None)
    here.store.held = True
    if holds:
        await there.store.commit(*first)
    ledger.change_later(tables.requests, request.id, lambda known: core.withdraw(known or request, "it is gone", 0.0))
    assert tables.requests.get(request.id).state is RequestState.WITHDRAWN
    assert await is_final(ledger, tables.requests, request.id, anyio.lowlevel.checkpoint) is not holds
    assert tables.requests.get(request.id).state is (RequestState.ANSWERED if holds else RequestState.WITHDRAWN)
    if not holds:
        with pytest.raises(WriteConflict):
            await there.store.commit(*first)


async def test_what_time_does_to_a_request_takes_no_audit_entry_of_an_answer_along(
    fleet: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there, request = await asked(fleet)
    claim_id = await claimed(there.hub, request, "ann", 2)
    fleet.database.away = True
    await settle(2.5)
    fleet.database.away = False
    attempt = Attempt(principal="ann", action="AnswerPendingRequest", target=request.id)
    with away(here, monkeypatch) as commits, pytest.raises(Unavailable), here.hub.audit.record_change(attempt):
        await answer(here.hub, request, claim_id)
    await here.store.commit(*commits[0])  # of the claim's end
    await settle(5)
    moments = [moment.what for moment in here.hub.inbox.get(request.id).moments]
    assert RequestEventType.LAPSED in moments
    noted = [entry for entry in here.hub.audit.select(AuditFilter(principal="ann")) if entry.kind is AuditKind.CHANGE]
    assert [entry.outcome for entry in noted if entry.outcome == OK] == []


async def test_an_answer_to_what_is_closed_is_refused_without_the_database(fleet: Members) -> None:
    here, there, request = await asked(fleet)
    await there.hub.inbox.answer(request.id, Accept({"name": "y"}), "bob", answer_id="b", claim_id=None)
    await settle()
    fleet.database.away = True
    assert await refused(here.hub, request, None) == "ALREADY_ANSWERED"
