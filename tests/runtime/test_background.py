"""Work that nobody waits for."""

from collections.abc import Callable

import anyio
import pytest

from hubbubd.runtime.background import Background


@pytest.mark.parametrize("start", [Background.start_soon, Background.start_brief], ids=["soon", "brief"])
async def test_what_still_runs_at_the_end_is_ended_and_may_clean_up(start: Callable[..., None]) -> None:
    ended = list[str]()

    async def work() -> None:
        try:
            await anyio.sleep(1e6)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(1)
            ended.append("work")

    async with Background.open() as background:
        start(background, work)
        await anyio.sleep(1)
    assert ended == ["work"]


@pytest.mark.parametrize("start", [Background.start_soon, Background.start_brief], ids=["soon", "brief"])
async def test_a_failure_ends_nothing_else(start: Callable[..., None]) -> None:
    done = list[str]()

    async def fails() -> None:
        raise ValueError("wrong")

    async def goes_on() -> None:
        await anyio.sleep(1)
        done.append("work")

    async with Background.open() as background:
        start(background, goes_on)
        start(background, fails)
        await anyio.sleep(2)
    assert done == ["work"]
