"""Ports of 127.0.0.1 that a test is given, and nobody else on this machine for as long as it needs them."""

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FIRST = 15_000
OF_THE_SYSTEM = Path("/proc/sys/net/ipv4/ip_local_port_range")


@contextmanager
def reserved() -> Iterator[int]:
    """A port where nobody listens. A server may be started there, ended, and another one started in its place.

    It is none of those that the system hands out for port 0, so nobody gets it in between. Tests that run
    at the same time get others: a name stands for the port, which the kernel frees when its process is gone.
    """
    chance = random.SystemRandom()
    end = int(OF_THE_SYSTEM.read_text().split()[0])
    while True:
        port = chance.randrange(FIRST, end)
        with socket.socket(socket.AF_UNIX) as name:
            try:
                name.bind(f"\0hubbub-test-port-{port}")
                _try(port)
            except OSError:
                continue  # another test has it, or somebody listens there
            yield port
            return


def _try(port: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))
