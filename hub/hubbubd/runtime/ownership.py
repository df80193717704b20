"""Which servers are this hub's own: it connects them, and acts on what becomes of their records.

Reading and watching needs no owner, nor does a change that is guarded by what it was made from.
"""

from typing import Protocol


class Ownership(Protocol):
    """Answers whose a server is."""

    def owns(self, server: str) -> bool:
        """Return whether a server of this name is this hub's own."""
        ...


class Sole:
    """The ownership of a hub that shares its store with nobody: all servers are its own."""

    def owns(self, server: str) -> bool:
        return True
