"""Races of host and inbox, and hosts that answer for their people, again and again. `make races` has more of them."""

import asyncio
import os
import random

import pytest

from hubbubd.upstream.ports import Era

from ..runtime.conftest import World
from .scripted import answering, asks, connected, host_at
from .test_answers_of_hosts import ASKED, DONE, NOBODY, PERSON, answered_by_a_person
from .test_rounds import race

RACES = int(os.environ.get("HUBBUB_RACES", "200"))
TIMES = RACES // 8


@pytest.mark.parametrize("of_host", Era)
async def test_of_host_and_inbox_exactly_one_answers_each_question(world: World, of_host: Era) -> None:
    await race(world, of_host, RACES)


@pytest.mark.parametrize("of_host", Era)
@pytest.mark.parametrize("of_server", Era)
@pytest.mark.parametrize("said", NOBODY)
async def test_of_many_answers_that_nobody_gave_none_counts(
    world: World, of_host: Era, of_server: Era, said: str
) -> None:
    chance = random.Random(7)
    async with connected(world) as hub:
        for _ in range(TIMES):
            got = asks(world, of_server, ASKED)
            host = host_at(hub, of_host, answering(NOBODY[said], after_s=chance.uniform(0, 0.9)))
            call = asyncio.create_task(host.call())
            await answered_by_a_person(hub, call)
            assert (await call)["result"]["content"] == DONE
            assert (got, len(host.asked)) == ([{"action": "accept", "content": PERSON.content}], 1)


@pytest.mark.parametrize("of_host", Era)
@pytest.mark.parametrize("of_server", Era)
async def test_of_many_quick_answers_with_content_all_count(world: World, of_host: Era, of_server: Era) -> None:
    chance = random.Random(7)
    async with connected(world) as hub:
        for number in range(TIMES):
            got = asks(world, of_server, ASKED)
            said = {"action": "accept", "content": {"where": f"there {number}", "sure": True}}
            host = host_at(hub, of_host, answering(said, after_s=chance.uniform(0, 0.01)))
            assert (await host.call())["result"]["content"] == DONE
            assert got == [said]
