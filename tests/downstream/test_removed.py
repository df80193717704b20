"""The end of a request whose endpoint is removed, when something else ends it in the same turn of the loop."""

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest

from hubbubd.downstream import HostOutbox, HostRequest, McpHost

from .conftest import ADA, NEW, Opened, Place, Refused, outcome, settle

Handler = Callable[[HostRequest], Awaitable[bytes]]
GONE = "PROFILE_NOT_FOUND"


async def never(_: HostRequest) -> bytes:
    """A handler whose result never comes."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError


async def never_of_a_task(request: HostRequest) -> bytes:
    """The same, by a task of its own."""
    return await asyncio.create_task(never(request))


async def slow_to_end(request: HostRequest) -> bytes:
    """The same; it has something to do at its end, which takes a few turns."""
    try:
        return await never(request)
    finally:
        for _ in range(3):
            await asyncio.sleep(0)


async def serve(here: Place, handler: Handler) -> bytes:
    """The response to a request with this handler."""
    host = McpHost(principal=ADA, revision=NEW)
    request = HostRequest(id=1, method="tools/call", params={}, host=host, send=HostOutbox().send)
    return await here.endpoint.serve(request, handler)


def end_both(remove: Callable[[], None], cancel: Callable[[], object], removed_first: bool) -> None:
    """Ends a request twice in one turn of the loop."""
    for end in (remove, cancel) if removed_first else (cancel, remove):
        end()


HANDLERS = pytest.mark.parametrize("handler", [never, never_of_a_task, slow_to_end])
ORDERS = pytest.mark.parametrize("removed_first", [True, False])


@HANDLERS
async def test_the_host_hears_that_it_was_removed(place: Opened, handler: Handler) -> None:
    async with place() as here:
        request = asyncio.create_task(serve(here, handler))
        await settle(1)
        here.endpoint.remove()
        with pytest.raises(Refused) as refused:
            outcome(await request)
        assert refused.value.data["reason"] == GONE
        assert request.cancelling() == 0
        await here.endpoint.wait_until_removed()


@HANDLERS
@ORDERS
async def test_a_host_that_hangs_up_meanwhile_cancels_it(place: Opened, handler: Handler, removed_first: bool) -> None:
    async with place() as here:
        request = asyncio.create_task(serve(here, handler))
        await settle(1)
        end_both(here.endpoint.remove, request.cancel, removed_first)
        await asyncio.wait([request])
        assert request.cancelled()


@HANDLERS
@ORDERS
async def test_a_credential_that_ends_meanwhile_does_not_leave_the_host_without_an_answer(
    place: Opened, handler: Handler, removed_first: bool
) -> None:
    async with place() as here:
        scope = anyio.CancelScope()

        async def serve_while_valid() -> bytes | None:
            with scope:
                return await serve(here, handler)
            return None

        request = asyncio.create_task(serve_while_valid())
        await settle(1)
        end_both(here.endpoint.remove, scope.cancel, removed_first)
        await asyncio.wait([request])
        assert not request.cancelled()
        assert scope.cancelled_caught or GONE.encode() in (request.result() or b"")
        assert request.cancelling() == 0


async def test_a_result_that_is_there_all_the_same_is_sent_and_nothing_stays_cancelled(place: Opened) -> None:
    async def stubborn(request: HostRequest) -> bytes:
        try:
            return await never(request)
        except asyncio.CancelledError:
            return b'{"content":[]}'

    async with place() as here:
        request = asyncio.create_task(serve(here, stubborn))
        await settle(1)
        here.endpoint.remove()
        assert outcome(await request) == {"content": []}
        assert request.cancelling() == 0
