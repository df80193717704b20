"""Optimistic concurrency for changes of a server over the API: each change gives it a new revision."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hubbubd.core.servers.server_record import ServerRecord
from hubbubd.errors import Aborted, AlreadyExists, NotFound


class StaleRevision(Aborted):
    """The server was changed since the caller read it; `now` is its current record."""

    def __init__(self, now: ServerRecord) -> None:
        super().__init__(
            f"{now.name} has changed since you read it: read it again, and change what is there now",
            reason="REVISION_CONFLICT",
            metadata={"server": now.name, "revision": str(now.revision)},
        )
        self.now = now


def require_revision(record: ServerRecord, revision: int | None) -> ServerRecord:
    """Return the record if it has this revision (None: any). Raises StaleRevision."""
    if revision is not None and record.revision != revision:
        raise StaleRevision(record)
    return record


def next_revision(newest: int, before: ServerRecord | None = None) -> int:
    """Return a revision above the store's `newest`; no server of this name ever had it, not even a removed one."""
    return max(newest, before.revision if before else 0) + 1


def file_revision(before: ServerRecord | None, record: ServerRecord, newest: int) -> int:
    """Return the revision of a server of the files: the stored one if the configuration is unchanged.

    Stored configurations have no secrets, so these are not compared.
    """
    if before is None or before.source != record.source or before.roots != record.roots:
        return next_revision(newest, before)
    same = before.config.model_dump_json() == record.config.model_dump_json()
    return before.revision if same else next_revision(newest, before)


def with_changes(before: ServerRecord, changes: Mapping[str, Any], stored: ServerRecord | None) -> ServerRecord:
    """Return the `stored` record of a server with these changes. Raises NotFound.

    With a new `revision` the changes were made from the record `before`: raises StaleRevision if another one is stored
    now.
    """
    if stored is None:
        raise NotFound("server", before.name)
    if "revision" in changes:
        require_revision(stored, before.revision)
    return replace(stored, **changes)


def exists_error(name: str) -> AlreadyExists:
    """Return the error for a new server whose name another server has."""
    return AlreadyExists(f"a server {name!r} exists already", reason="SERVER_EXISTS")
