"""Many results, and lists, arrive at hosts as their server has sent them. `make crash-hosts` sends thousands."""

import os

from .test_hosts_fidelity import Hosts, hosts, lists_arrive, mirrors, results_arrive

__all__ = ["hosts", "mirrors"]

RESULTS = int(os.environ.get("HUBBUB_RESULTS", "400"))
LISTS = RESULTS // 40


async def test_many_results_and_entries_arrive_as_they_were_sent(hosts: Hosts) -> None:
    await results_arrive(hosts, RESULTS)
    await lists_arrive(hosts, LISTS)
