"""Which member of a fleet has which server: records, and decisions that wait for nothing.

A lease says whose a server is. It changes in two ways only: its holder gives it up, or its holder is gone. Who is gone,
the database's clock alone decides, and whoever is gone commits nothing more (`store/membership.py`). So a lease needs no
other fence than that of its holder.
"""

from dataclasses import dataclass

from hubbubd.bounds import Whole

NOBODY = ""
"""The holder of a lease that was given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Whose a server is: the record `lease/SERVER`.

    `life` is that of the holder (`members.Member.life`). `wish` is the member that a lease without a holder was meant for.
    """

    server: str
    member: str = NOBODY
    life: Whole = 0
    wish: str = ""
