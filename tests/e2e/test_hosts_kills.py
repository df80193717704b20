"""A hub that is killed 200 times while a host asks its person."""

from pathlib import Path
from typing import Any

from .test_hosts_restart import asking, journal, kills, losses

__all__ = ["asking", "journal"]

KILLS = 200


async def test_a_host_finds_its_call_after_each_of_200_kills_and_each_tool_ran_once(
    start_hub: Any, asking: dict[str, Any], journal: Path
) -> None:
    await kills(start_hub, asking, journal, KILLS)


async def test_a_host_hears_after_each_of_200_kills_that_its_call_is_gone(
    start_hub: Any, asking: dict[str, Any]
) -> None:
    await losses(start_hub, asking, KILLS)
