"""Notes about servers: what they do otherwise than they should, for those who can tell their authors."""

from typing import Any

import anyio

from hubbubd.core.filters import ServerFilter
from hubbubd.redaction import REDACTION
from hubbubd.runtime.diagnostics import checks
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.servers.notes import MAX_CHARS, MAX_NOTES

from .conftest import World, server, settle, until

QUICK: dict[str, Any] = {"backoff_s": [0.1], "ping_interval_s": 0}


def notes(hub: Hub) -> tuple[str, ...]:
    return hub.servers.get("one").notes


async def test_a_later_note_on_a_matter_replaces_the_earlier_and_none_withdraws_it(world: World) -> None:
    async with world.hub(server(**QUICK)) as hub:
        await settle(1)
        note = world.peer.link.inbound.note
        note("lists", "it sends odd lists")
        note("pings", "it answers no ping")
        note("lists", "it sends odd lists, twice")
        await settle(1)
        assert notes(hub) == ("it sends odd lists, twice", "it answers no ping")
        note("lists", None)
        note("never noted", None)
        await settle(1)
        assert notes(hub) == ("it answers no ping",)


async def test_a_note_holds_until_the_next_connection_and_a_lasting_one_beyond(world: World) -> None:
    async with world.hub(server(**QUICK)) as hub:
        await settle(1)
        world.peer.link.inbound.note("stream", "its stream is cut")
        world.peer.link.inbound.note("cookie", "it sets a cookie", lasting=True)
        world.peer.link.lose()
        await settle(0.01)
        assert len(notes(hub)) == 2
        await until(lambda: notes(hub) == ("it sets a cookie",))


async def test_what_is_noted_while_a_connection_is_made_holds_with_it(world: World) -> None:
    async with world.hub(server(**QUICK)) as hub:
        await settle(1)
        world.peer.link.inbound.note("stream", "its stream is cut")
        world.peer.plan.append(10.0)
        world.peer.link.lose()
        await settle(5)
        assert len(world.peer.attempts) == 2
        world.peer.link.inbound.note("login", "its registration was forgotten")
        await settle(1)
        assert notes(hub) == ("its stream is cut", "its registration was forgotten")
        await settle(10)
        assert notes(hub) == ("its registration was forgotten",)


async def test_notes_are_bounded_in_number_and_length(world: World) -> None:
    async with world.hub(server(**QUICK)) as hub:
        await settle(1)
        for number in range(2 * MAX_NOTES):
            world.peer.link.inbound.note(f"matter {number}", "x" * (MAX_CHARS + number))
        await settle(1)
        assert len(notes(hub)) == MAX_NOTES
        assert {len(note) for note in notes(hub)} == {MAX_CHARS}
        assert notes(hub)[0].endswith("x")
        assert notes(hub)[1].endswith("...")


async def test_a_storm_of_changing_notes_is_published_now_and_then(world: World) -> None:
    async with world.hub(server(**QUICK)) as hub:
        await settle(1)
        published = 0

        async def count() -> None:
            nonlocal published
            async for event in hub.servers.watch(ServerFilter()):
                published += event.record is not None

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count)
            await settle(1)
            before = published
            for number in range(1000):
                world.peer.link.inbound.note("storm", f"number {number}")
                await anyio.sleep(0.001)
            await settle(2)
            assert 1 <= published - before <= 4
            assert notes(hub) == ("number 999",)
            tasks.cancel_scope.cancel()


async def test_the_secrets_of_a_server_are_not_in_notes_about_it(world: World) -> None:
    secret = "a-token-of-some-length"
    REDACTION.set_secrets("one", [secret])
    async with world.hub(server(**QUICK)) as hub:
        await settle(1)
        world.peer.link.inbound.note("echo", f"it repeats {secret}")
        await settle(1)
        assert notes(hub) == ("it repeats [redacted]",)
    REDACTION.set_secrets("one", ())


async def test_the_doctor_names_what_was_noted(world: World) -> None:
    async with world.hub(server(**QUICK)) as hub:
        await settle(1)
        world.peer.link.inbound.note("lists", "it sends odd lists")
        await settle(1)
        (found,) = checks.describe_notes(hub.servers.all())
        assert (found.about, found.message) == ("server one", "it sends odd lists")
