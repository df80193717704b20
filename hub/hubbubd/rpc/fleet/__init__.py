"""Between the members of a fleet: what needs a server's connection is carried out by the member that has it.

    caller ──> ingress: gate, quotas, audit ──> forwarding ──> peers ── mutual TLS ──> service ──> servicer: the owner

The ingress is the member that the caller has reached. The owner forwards nothing. Only hubs with `[fleet]` import this.
"""

from hubbubd.rpc.fleet.forwards.forwarding import Forwarding as Forwarding
from hubbubd.rpc.fleet.port import FleetPort as FleetPort
