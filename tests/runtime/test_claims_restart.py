"""Claims over a restart of the hub: a lease is a promise about time, and time goes on while the hub is down."""

import anyio

from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import PendingRequest
from hubbubd.errors import FailedPrecondition
from hubbubd.runtime.hub import Hub

from ..raising import raising
from .conftest import FORM, World, question, server, until

LEASE_S = 100.0


async def ask(world: World, hub: Hub) -> PendingRequest:
    """A question that outlives the hub: it was asked as a task."""
    await until(lambda: world.peer.links)
    await world.peer.link.asked("elicitation/create", {**FORM, "task": {"ttl": 600_000}})
    return await question(hub)


async def answer(hub: Hub, request: PendingRequest, by: str, claim_id: str | None = None) -> PendingRequest:
    return await hub.inbox.answer(request.id, Accept({"name": by}), by, answer_id=None, claim_id=claim_id)


async def test_a_claim_keeps_its_time_over_a_restart(world: World) -> None:
    async with world.hub(server()) as hub:
        request = await ask(world, hub)
        claim = (await hub.inbox.claim(request.id, "ann", LEASE_S)).claim
    await anyio.sleep(LEASE_S / 2)
    async with world.hub(server()) as hub:
        assert hub.inbox.get(request.id).claim == claim
        with raising(FailedPrecondition, "ALREADY_CLAIMED"):
            await answer(hub, request, "bob")
        assert (await answer(hub, request, "ann", claim.id)).answered_by == "ann"
