"""Optimistic concurrency for those who read a server, think, and change it: each change gives it a new revision."""

from hubbubd.core.server import ServerRecord
from hubbubd.errors import Aborted


class Stale(Aborted):
    """Somebody has changed a server since it was read; `now` is what is there."""

    def __init__(self, now: ServerRecord) -> None:
        super().__init__(
            f"{now.name} was changed meanwhile; read it again, and then change what is there now",
            reason="REVISION_CONFLICT",
            metadata={"server": now.name, "revision": str(now.revision)},
        )
        self.now = now


def expect(record: ServerRecord, revision: int | None) -> ServerRecord:
    """The record, if nobody has changed it since this revision. Raises Stale."""
    if revision is not None and record.revision != revision:
        raise Stale(record)
    return record


def following(newest: int, before: ServerRecord | None = None) -> int:
    """A revision that no server of this name has had, also none that was removed: the store's `newest` only grows."""
    return max(newest, before.revision if before else 0) + 1


def kept_revision(before: ServerRecord | None, record: ServerRecord, newest: int) -> int:
    """The revision of a server of the files: that of before, if it is configured the same way.

    What the store gave back has no secrets, so they are left out of the comparison.
    """
    if before is None or before.source != record.source or before.roots != record.roots:
        return following(newest, before)
    same = before.config.model_dump_json() == record.config.model_dump_json()
    return before.revision if same else following(newest, before)
