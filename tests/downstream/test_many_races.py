"""The race of host and inbox, a thousand times."""

import pytest

from hubbubd.upstream.ports import Era

from ..runtime.conftest import World
from .test_rounds import race


@pytest.mark.parametrize("of_host", Era)
async def test_of_host_and_inbox_exactly_one_answers_each_of_a_thousand_questions(world: World, of_host: Era) -> None:
    await race(world, of_host, 1000)
