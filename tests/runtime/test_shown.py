"""Who was shown a request: it stands in its record in the end, and is no news for anybody."""

from collections.abc import Callable
from typing import Any

from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import RequestEventType
from hubbubd.runtime.records import EventKind

from .conftest import FORM, Watching, World, question, server, settle


async def test_a_watch_that_goes_on_after_a_restart_is_not_told_who_was_shown_what(
    world: World, watching: Callable[[Any], Watching]
) -> None:
    async with world.linked() as hub:
        await world.peer.link.asked("elicitation/create", {**FORM, "task": {"ttl": 600_000}})
        request = await question(hub)
        first = watching(hub.inbox.watch(RequestFilter()))
        await settle()
        await first.stop()
        hub.inbox.note_view(request, "ann")
        shown_at = hub.clock.now()
    for _ in range(2):
        async with world.hub(server()) as hub:
            again = watching(hub.inbox.watch(RequestFilter(), first.token))
            await settle(5)
            assert again.kinds() == [EventKind.SYNCED] or again.kinds() == []
            await again.stop()
    async with world.hub(server()) as hub:
        given = Accept({"name": "x"})
        after = await hub.inbox.answer(request.id, given, "bob", answer_id=None, claim_id=None)
        moments = [(event.what, event.by, event.at) for event in after.moments]
        assert moments[0] == (RequestEventType.SHOWN, "ann", shown_at), "and yet it is known"
