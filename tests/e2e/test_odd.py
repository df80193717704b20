"""Servers that do every odd thing at once harm nobody else. For longer, and with an eye on the time: `make odd`."""

from pathlib import Path

from .odd import GOOD, OVER_HTTP, OVER_STDIO, PACE_S, judge, storm

SECONDS = 6


async def test_servers_that_do_every_odd_thing_at_once_harm_nobody_else(tmp_path: Path) -> None:
    report = await storm(tmp_path, SECONDS, print)
    judge(report, slower=None)
    print(*report.lines(), sep="\n")
    assert report.wrong == []
    assert len(report.latencies["odd"]) == len(GOOD) * int(SECONDS / PACE_S)
    # Odd servers that were never called prove nothing.
    called = {outcome.partition(" ")[0] for outcome in report.outcomes}
    assert called == {*OVER_STDIO, *OVER_HTTP}
