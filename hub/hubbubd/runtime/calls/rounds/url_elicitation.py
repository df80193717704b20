"""Error -32042 (MCP 2025-11-25, client/elicitation, URL elicitation required): URLs to visit before a call can succeed.

The call is parked while people are asked to visit them, and sent again when all have agreed. When the server asks again
for a URL that was agreed to, nobody is asked a second time: the hub waits for its completion notification.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

import anyio

from hubbubd import payload
from hubbubd.core.inbox.questions import find_problem
from hubbubd.core.inbox.request_states import Origin, PendingRequest, RequestKind
from hubbubd.core.jsonrpc import URL_ELICITATION_REQUIRED
from hubbubd.errors import PeerError
from hubbubd.runtime.calls.queue import ActiveCall, ServerQueue
from hubbubd.runtime.calls.rounds.multi_round import MultiRound, new_request, next_round
from hubbubd.timing.clock import Clock
from hubbubd.upstream.ports import Hello

REVISION = "2025-11-25"
"""The only revision with this error."""

COMPLETION_S = 2.0
"""Seconds from the last consent to sending again, unless `notifications/elicitation/complete` comes earlier."""


class Consents:
    """The consents of people to visit the URLs that calls of all servers wait for."""

    def __init__(self, rounds: MultiRound, clock: Clock) -> None:
        self._rounds = rounds
        self._clock = clock
        self._completions = WeakKeyDictionary[ActiveCall, dict[str, anyio.Event]]()
        """By call and elicitationId: set once the server has reported completion."""

    async def ask(self, queue: ServerQueue, active: ActiveCall, hello: Hello, error: PeerError) -> None:
        """Ask people to visit the URLs of an error, and queue the call again.

        Raises the error itself when it is a different one, when a person does not agree, or when the server does not
        report completion in the time for answers; and UpstreamError (TOO_MANY_ROUNDS).
        """
        pages = _parse_pages(error) if queue.config.elicitation and hello.protocol_version == REVISION else {}
        if not pages:
            raise error

        refusal = payload.dumps({"code": error.code, "message": error.message, "data": error.data})
        rounds = replace(next_round(queue, active), refusal=refusal)
        completions = self._completions.setdefault(active, {})
        # In an earlier round people have agreed to visit these pages: only their completion is awaited.
        agreed_ids = [page_id for page_id in pages if page_id in completions and not completions[page_id].is_set()]
        requests = {
            page_id: new_request(
                queue, active, Origin.ROUNDS, RequestKind.ELICITATION_URL, params, now=self._clock.now()
            )
            for page_id, params in pages.items()
            if page_id not in agreed_ids
        }
        completions.update({page_id: anyio.Event() for page_id in requests})
        async with self._rounds.park(queue, active, rounds, requests):
            await self._rounds.wait_for_answers(requests, partial(_require_consent, error))
            with anyio.move_on_after(queue.config.find_answer_limit_s(durable=True)) as timeout:
                for page_id in agreed_ids:
                    await completions[page_id].wait()
            if timeout.cancelled_caught:
                raise error
            with anyio.move_on_after(COMPLETION_S):
                for page_id in requests:
                    await completions[page_id].wait()
        queue.requeue(active)

    def note_completion(self, server: str, elicitation_id: object) -> None:
        """Note a server's notification that an elicitation is complete: calls that wait for it are sent again."""
        for active, completions in self._completions.items():
            if active.call.server == server and isinstance(elicitation_id, str) and elicitation_id in completions:
                completions[elicitation_id].set()

    async def resume(
        self, queue: ServerQueue, active: ActiveCall, refusal: bytes, requests: Mapping[str, PendingRequest]
    ) -> None:
        """Wait for the consents of a call from before a restart, and queue it again. Raises PeerError.

        Completion cannot be reported over the new connection, so this waits COMPLETION_S.
        """
        error = payload.loads(refusal)
        with queue.park(active):
            await self._rounds.wait_for_answers(requests, partial(_require_consent, PeerError(**error)))
            await anyio.sleep(COMPLETION_S)
        queue.requeue(active)


def _require_consent(error: PeerError, request: PendingRequest) -> None:
    """Raise the server's error unless the person has agreed to visit the page."""
    if request.answer is None or payload.loads(request.answer.payload).get("action") != "accept":
        raise error


def _parse_pages(error: PeerError) -> dict[str, dict[str, Any]]:
    """Return the elicitations in an error by id; none if it is another error, or if any of them is invalid."""
    match error.data:
        case {"elicitations": [*elicitations]} if error.code == URL_ELICITATION_REQUIRED:
            pass
        case _:
            return {}
    pages: dict[str, dict[str, Any]] = {}
    for page in elicitations:
        match page:
            case {"mode": "url", "elicitationId": str(page_id), "message": str(), "url": str()} if page_id not in pages:
                pages[page_id] = cast("dict[str, Any]", page)
            case _:
                return {}
        if find_problem(RequestKind.ELICITATION_URL, pages[page_id]) is not None:
            return {}
    return pages
