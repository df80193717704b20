"""Two thousand results, and as many entries of lists, that arrive at hosts as their server has sent them."""

from .test_hosts_fidelity import ENTRIES, Hosts, hosts, lists_arrive, mirrors, results_arrive

__all__ = ["hosts", "mirrors"]

RESULTS, LISTS = 2000, 50


async def test_thousands_of_results_and_entries_arrive_as_they_were_sent(hosts: Hosts) -> None:
    assert RESULTS + 2 * LISTS * ENTRIES >= 4000
    await results_arrive(hosts, RESULTS)
    await lists_arrive(hosts, LISTS)
