"""Which hosts a pending request concerns: those that were asked, and why others were not."""

from dataclasses import dataclass
from typing import Final

from hubbubd import bounds

MAX_HOSTS: Final = 10
"""The most hosts that a request names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedHost:
    """A host of the causing call, by its own name; `why_not` says why it was not asked, and is "" if it was asked."""

    host: str
    at: bounds.Moment
    why_not: str = ""


def with_host(hosts: tuple[AskedHost, ...], decision: AskedHost) -> tuple[AskedHost, ...]:
    """Return the hosts with a decision about one of them; the same tuple if that changes nothing.

    A host that was asked stays recorded as asked. Beyond MAX_HOSTS no host is added.
    """
    earlier = next((each for each in hosts if each.host == decision.host), None)
    if earlier is None:
        return (*hosts, decision) if len(hosts) < MAX_HOSTS else hosts
    if not earlier.why_not or earlier.why_not == decision.why_not:
        return hosts
    return tuple(decision if each is earlier else each for each in hosts)
