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
from hubbubd.core.questions import problem
from hubbubd.errors import PeerError
from hubbubd.runtime.calls.call_queue import Lane, Live
from hubbubd.runtime.calls.multi_round import Rounds, asked_by, next_round
from hubbubd.upstream.ports import Hello

URL_ELICITATION_REQUIRED = -32042
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

    async def ask(self, lane: Lane, live: Live, hello: Hello, error: PeerError) -> None:
        """Has people agree to what an error asks for, and puts the call in the queue again.

        Raises the error itself when it is another one, or somebody did not agree, or the server is not done with a
        page within `answer_timeout_s`; and UpstreamError (TOO_MANY_ROUNDS).
        """
        pages = _pages(error) if lane.config.elicitation and hello.protocol_version == REVISION else {}
        if not pages:
            raise error

        refusal = payload.dumps({"code": error.code, "message": error.message, "data": error.data})
        rounds = replace(next_round(lane, live), refusal=refusal)
        awaited = [page for page in pages if page in live.consents and not live.consents[page].is_set()]
        asked = {
            page: asked_by(lane, live, Origin.ROUNDS, RequestKind.ELICITATION_URL, params, self._clock.now())
            for page, params in pages.items()
            if page not in awaited
        }
        live.consents.update({page: anyio.Event() for page in asked})
        async with self._rounds.asking(lane, live, rounds, asked):
            await self._rounds.answers(asked, partial(_agreed, error))
            with anyio.move_on_after(lane.config.answer_timeout_s) as patience:
                for page in awaited:
                    await live.consents[page].wait()
            if patience.cancelled_caught:
                raise error
            with anyio.move_on_after(COMPLETION_S):
                for page in asked:
                    await live.consents[page].wait()
        lane.enter_again(live)

    async def resume(self, lane: Lane, live: Live, refusal: bytes, asked: Mapping[str, PendingRequest]) -> None:
        """As `ask`, for the pages of a call that the hub before this one left. Raises PeerError.

        Its server knows no connection on which it could say that it is done with them.
        """
        error = payload.loads(refusal)
        with lane.parked(live):
            await self._rounds.answers(asked, partial(_agreed, PeerError(**error)))
            await anyio.sleep(COMPLETION_S)
        lane.enter_again(live)


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
