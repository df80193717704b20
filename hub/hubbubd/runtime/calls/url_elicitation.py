"""Pages to visit before a call can succeed: error -32042 (2025-11-25, elicitation, URL elicitation required error).

The call is parked while people are asked whether they will go there; once they all agreed it is sent again. A server
that asks for a page again to which somebody has agreed already is not done with it: nobody is asked a second time.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

import anyio

from hubbubd import payload
from hubbubd.clock import Clock
from hubbubd.core.inbox import Origin, PendingRequest, RequestKind
from hubbubd.core.jsonrpc import URL_ELICITATION_REQUIRED
from hubbubd.core.questions import problem
from hubbubd.errors import PeerError
from hubbubd.runtime.calls.call_queue import ActiveCall, ServerQueue
from hubbubd.runtime.calls.multi_round import Rounds, asked_by, next_round
from hubbubd.upstream.ports import Hello

REVISION = "2025-11-25"
"""The only one with this error."""

COMPLETION_S = 2.0
"""How long the call waits, after the last consent, for notifications/elicitation/complete, which not every server
sends. If it comes later, the server asks again."""


class Consents:
    """The pages that the calls of all servers need."""

    def __init__(self, rounds: Rounds, clock: Clock) -> None:
        self._rounds = rounds
        self._clock = clock
        self._pages: dict[str, dict[ActiveCall, dict[str, anyio.Event]]] = {}
        """By server, call and elicitationId: set once the server has said that it is done with the page."""

    async def ask(self, queue: ServerQueue, active: ActiveCall, hello: Hello, error: PeerError) -> None:
        """Has people agree to what an error asks for, and puts the call in the queue again.

        Raises the error itself when it is another one, or somebody did not agree, or the server is not done with a
        page within `answer_timeout_s`; and UpstreamError (TOO_MANY_ROUNDS).
        """
        pages = _pages(error) if queue.config.elicitation and hello.protocol_version == REVISION else {}
        if not pages:
            raise error

        refusal = payload.dumps({"code": error.code, "message": error.message, "data": error.data})
        rounds = replace(next_round(queue, active), refusal=refusal)
        done = self._pages.setdefault(queue.config.name, {}).setdefault(active, {})
        awaited = [page for page in pages if page in done and not done[page].is_set()]
        asked = {
            page: asked_by(queue, active, Origin.ROUNDS, RequestKind.ELICITATION_URL, params, now=self._clock.now())
            for page, params in pages.items()
            if page not in awaited
        }
        done.update({page: anyio.Event() for page in asked})
        async with self._rounds.asking(queue, active, rounds, asked):
            await self._rounds.answers(asked, partial(_agreed, error))
            with anyio.move_on_after(queue.config.answer_timeout_s) as patience:
                for page in awaited:
                    await done[page].wait()
            if patience.cancelled_caught:
                raise error
            with anyio.move_on_after(COMPLETION_S):
                for page in asked:
                    await done[page].wait()
        queue.enter_again(active)

    def complete(self, server: str, elicitation_id: object) -> None:
        """Notes that a server is done with a page, if a call waits for that."""
        for done in self._pages.get(server, {}).values():
            if isinstance(elicitation_id, str) and elicitation_id in done:
                done[elicitation_id].set()

    def forget(self, active: ActiveCall) -> None:
        """Forgets the pages of a call that has ended."""
        calls = self._pages.get(active.call.server, {})
        calls.pop(active, None)
        if not calls:
            self._pages.pop(active.call.server, None)

    async def resume(
        self, queue: ServerQueue, active: ActiveCall, refusal: bytes, asked: Mapping[str, PendingRequest]
    ) -> None:
        """As `ask`, for the pages of a call that the hub before this one left. Raises PeerError.

        Its server knows no connection on which it could say that it is done with them.
        """
        error = payload.loads(refusal)
        with queue.parked(active):
            await self._rounds.answers(asked, partial(_agreed, PeerError(**error)))
            await anyio.sleep(COMPLETION_S)
        queue.enter_again(active)


def _agreed(error: PeerError, request: PendingRequest) -> None:
    if request.answer is None or payload.loads(request.answer.payload).get("action") != "accept":
        raise error


def _pages(error: PeerError) -> dict[str, dict[str, Any]]:
    """The elicitations in an error, by id; none when any of them is not as the specification wants it."""
    wanted: list[Any] = []
    match error.data:
        case {"elicitations": [*elicitations]} if error.code == URL_ELICITATION_REQUIRED:
            wanted = elicitations
        case _:
            pass
    pages: dict[str, dict[str, Any]] = {}
    for page in wanted:
        match page:
            case {"mode": "url", "elicitationId": str(name), "message": str(), "url": str()} if name not in pages:
                pages[name] = cast("dict[str, Any]", page)
            case _:
                return {}
        if problem(RequestKind.ELICITATION_URL, pages[name]) is not None:
            return {}
    return pages
