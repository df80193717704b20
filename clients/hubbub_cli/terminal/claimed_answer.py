"""A person at the terminal answers a pending request, under a claim."""

import contextlib
import secrets

import anyio

from hubbub_cli.output.details import print_call_result
from hubbub_cli.output.printer import note, print_json, say
from hubbub_cli.run.session import Settings
from hubbub_cli.terminal.answer import ask_for_answer
from hubbub_cli.terminal.prompts import read_line
from hubbub_cli.terminal.wait import wait_until_closed
from hubbub_client.data.records import PendingRequest
from hubbub_client.data.watch_events import Removed, Upsert
from hubbub_client.errors import FailedPrecondition, HubbubError
from hubbub_client.hub import Hub
from hubbub_client.numbers import whole_text
from hubbub_frontend.display.records import describe_call, describe_request, outcome, question_line, question_text

MAX_OFFERED = 20
CLAIM_TTL_S = 60.0
# Grace for releasing the claim after an interrupt, seconds.
RELEASE_LIMIT_S = 2.0
# How long the result of the call is waited for after an answer, seconds.
CALL_LIMIT_S = 5.0


async def choose_request(hub: Hub) -> PendingRequest | None:
    """Return the only open pending request, or the one that the person chooses, by default the oldest.

    None if there is none, or they end the input.
    """
    requests = [*reversed(await hub.inbox.list(states=["open"]))]
    if not requests:
        note("nothing is asked")
        return None
    if len(requests) == 1:
        return requests[0]
    for number, request in enumerate(requests[:MAX_OFFERED], 1):
        question = question_line(request)[:80]
        note(f"{number:3}) {request.server}: {question}  ({request.kind}, {request.id})")
    if len(requests) > MAX_OFFERED:
        note(f"     and {len(requests) - MAX_OFFERED} more")
    while True:
        try:
            typed = await read_line("which one [1]: ") or "1"
        except EOFError:
            return None
        number = whole_text(typed)
        if number is not None and 1 <= number <= len(requests):
            return requests[number - 1]
        note(f"type a number from 1 to {len(requests)}")


async def answer_and_report(hub: Hub, request: PendingRequest, settings: Settings, claim: str | None = None) -> bool:
    """Have the person answer, and print what came of it; return whether they answered. Raises HubbubError.

    `claim` is the id of a claim that they hold already; without it the request is claimed while they are asked.
    """
    if request.state != "open":
        by = f" by {request.answered_by}" if request.answered_by else ""
        raise FailedPrecondition(f"{request.id} is {outcome(request)}{by}", reason="REQUEST_CLOSED")
    if request.kind == "approval":
        note(f"{question_text(request)} ({request.id})")
    else:
        note(f"{request.server} asks ({request.kind}, {request.id})")
    result = await answer_claimed(hub, request, claim)
    if result is None:
        note(f"{request.id} is left open")
        return False
    if result.state == "open":  # the call needs the approval of others, too
        note(f"{request.id} waits on: {describe_votes(result)}")
        return True
    note(f"{request.id} is {outcome(result)}")
    await _print_call_result(hub, result, settings)
    return True


def describe_votes(request: PendingRequest) -> str:
    """Return who has approved a call that needs several approvals."""
    from hubbub_frontend.display.approvals import describe_progress  # imported here, since it imports rich

    return describe_progress(request, request.approval.rule) if request.approval else "others have to approve it, too"


async def print_given_answer(hub: Hub, request: PendingRequest, settings: Settings) -> None:
    """Print what an answer from the command line has done; at a terminal also the result of the call."""
    if settings.json:
        print_json(request.to_json())
        return
    if request.state == "open":
        say(f"{request.id} waits on: {describe_votes(request)}")
        return
    say(f"{request.id} is {describe_request(request)}")
    if settings.interactive:
        await _print_call_result(hub, request, settings)
    elif request.call_id:
        note(f"what its call returns: {settings.command('calls', 'watch', request.call_id)}")


async def _print_call_result(hub: Hub, request: PendingRequest, settings: Settings) -> None:
    """Print what the call that asked returns, if it ends within CALL_LIMIT_S; else how to follow it."""
    if request.call_id is None:
        return
    with anyio.move_on_after(CALL_LIMIT_S):
        try:
            async with contextlib.aclosing(hub.calls.watch(ids=[request.call_id])) as events:
                async for event in events:
                    match event:
                        case Upsert(record=call) if call.ended:
                            say(describe_call(call))
                            print_call_result(call)
                            return
                        case Removed(id=request.call_id):
                            return
                        case _:
                            pass
        except HubbubError:
            return  # one who may answer need not be allowed to see the call
    note(f"its call goes on: {settings.command('calls', 'watch', request.call_id)}")


async def answer_claimed(hub: Hub, request: PendingRequest, claim_id: str | None = None) -> PendingRequest | None:
    """Ask the person for the answer under a claim, and return the answered request; None if they leave it open.

    A claim keeps others from answering meanwhile. A claim `claim_id` that is given stays. Without it, a claim is made
    here, and released unless they answer. Raises HubbubError: ALREADY_CLAIMED, or REQUEST_CLOSED if the request is
    closed while they are asked.
    """
    own_claim_id = claim_id or secrets.token_urlsafe(18)
    outcome_or_error: PendingRequest | HubbubError | None = None

    async def watch_for_end() -> None:
        """Wait until the request is closed without an answer, then end the question to the person."""
        nonlocal outcome_or_error
        with contextlib.suppress(HubbubError):  # then the answer itself tells whether the request is closed
            closed_request = await wait_until_closed(hub, request, answered=False)
            state = (
                f"{outcome(closed_request)}: {closed_request.reason or 'no answer is needed any more'}"
                if closed_request
                else "gone"
            )
            outcome_or_error = FailedPrecondition(f"{request.id} is {state}", reason="REQUEST_CLOSED")
            note("")  # else the next line stands behind the prompt
            group.cancel_scope.cancel()

    try:
        if claim_id is None:
            await hub.inbox.claim(request.id, CLAIM_TTL_S, claim_id=own_claim_id)
        async with anyio.create_task_group() as group:
            group.start_soon(watch_for_end)
            group.start_soon(_renew_claim, hub, request.id, own_claim_id)
            try:
                outcome_or_error = await ask_for_answer(hub, request, {"claim_id": own_claim_id})
            except HubbubError as error:
                outcome_or_error = error
            group.cancel_scope.cancel()
    finally:
        if claim_id is None and not isinstance(outcome_or_error, PendingRequest):
            # Also after an interrupt. If the release fails, the claim lapses by itself.
            with anyio.CancelScope(shield=True), anyio.move_on_after(RELEASE_LIMIT_S), contextlib.suppress(HubbubError):
                await hub.inbox.release(request.id, own_claim_id)
    if isinstance(outcome_or_error, HubbubError):
        raise outcome_or_error
    return outcome_or_error


async def _renew_claim(hub: Hub, id_: str, claim_id: str) -> None:
    """Renew a claim three times within its term, until cancelled. If the claim is lost, print that, and return."""
    while True:
        await anyio.sleep(CLAIM_TTL_S / 3)
        try:
            await hub.inbox.renew(id_, claim_id, CLAIM_TTL_S)
        except FailedPrecondition as error:
            note(f"\nthe claim is lost: {error.message}")
            return
        except HubbubError:  # such as a hub that is away: the next renewal may come in time
            continue
