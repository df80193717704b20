"""Work that nobody waits for."""

from collections.abc import Callable

import anyio
import pytest

from hubbubd.runtime.background import Background
from hubbubd.telemetry.trace import CURRENT_RPC, CURRENT_TRACE, RpcSpan, Span, SpanKind, Trace


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


@pytest.mark.parametrize("start", [Background.start_soon, Background.start_brief], ids=["soon", "brief"])
async def test_it_does_not_belong_to_the_trace_of_who_started_it(start: Callable[..., None]) -> None:
    seen = list[object]()

    async def work() -> None:
        seen.extend([CURRENT_TRACE.get(), CURRENT_RPC.get()])

    trace = Trace(trace_id="1" * 32, span_id="1" * 16)
    CURRENT_TRACE.set(trace)
    CURRENT_RPC.set(RpcSpan(Span(name="rpc", kind=SpanKind.SERVER, trace=trace, start=0.0)))
    async with Background.open() as background:
        start(background, work)
        await anyio.sleep(1)
    assert seen == [None, None]
