"""The database of a fleet: a server, and now and then a synchronous standby that takes its place."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..ports import reserved
from ..postgres import Postgres, running

LIMIT_S = 60
POLL_S = 0.05


@dataclass
class Databases:
    """Two places, of which each has a server or none; clients name both and ask for the one that takes writes."""

    primary: Postgres
    other_port: int
    ports: tuple[int, int] = field(init=False)
    _made: int = 0

    def __post_init__(self) -> None:
        self.ports = (self.primary.port, self.other_port)

    def restart(self, away_s: float) -> None:
        """End the server as a crash does, and start it after so many seconds."""
        self.primary.stop()
        time.sleep(away_s)
        self.primary.start()

    def stand_by(self) -> Postgres:
        """Start a standby, and return once no commit is confirmed without it."""
        self._made += 1
        standby = self.primary.standby(self.other_port, f"standby-{self._made}")
        # The standby is not to wait for one of its own when it takes over.
        self.primary.psql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.psql("SELECT pg_reload_conf()")
        give_up = time.monotonic() + LIMIT_S
        while self.primary.psql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != "1":
            assert time.monotonic() < give_up, "the standby does not follow"
            time.sleep(POLL_S)
        return standby

    def fail_over(self, standby: Postgres) -> None:
        """End the server as a crash does, and have its standby take over."""
        self.primary.stop()
        standby.promote()
        self.primary, self.other_port = standby, self.primary.port

    def stop(self) -> None:
        """End the server that is left."""
        self.primary.stop()


@contextmanager
def databases() -> Generator[Databases]:
    """A database without a standby yet. The server that began is ended with the block, whichever it is by then."""
    with reserved() as other, running() as first:
        both = Databases(first, other)
        try:
            yield both
        finally:
            if both.primary is not first:
                both.stop()
                first.start()  # what began it ends it
