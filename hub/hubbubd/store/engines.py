"""Which engine has the store: a file in the data directory, or a database. Each is imported when it is chosen."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from anyio import to_thread

from hubbubd.config.sections.fleet import FleetSettings
from hubbubd.config.sections.store import StoreSettings
from hubbubd.errors import ConfigError
from hubbubd.process import installation
from hubbubd.store import Store, StoreLocked
from hubbubd.store.membership import Membership
from hubbubd.store.sqlite.file import check_file, lock_store

FILE: Final = "hubbub.db"
"""The store of a hub without a database, in its data directory."""


@asynccontextmanager
async def open_store(
    settings: StoreSettings, data_dir: Path, fleet: FleetSettings | None = None
) -> AsyncGenerator[tuple[Store, Membership | None]]:
    """Yield the open store, and this hub's membership in its fleet (None without a fleet); close both after the block.

    One hub uses a data directory at a time, whatever the engine. Raises StoreLocked, StoreTooNew, StoreDamaged,
    StoreUnavailable, and ConfigError when the engine is not installed or has no password.
    """
    if settings.url is None:
        from hubbubd.store.sqlite.sqlite_store import SqliteStore

        store = await SqliteStore.open(data_dir / FILE)  # locks the directory, too
        try:
            yield store, None
        finally:
            await store.close()
        return
    require_database()
    from hubbubd.store.postgres.identity import Entrant
    from hubbubd.store.postgres.members import PostgresMembers
    from hubbubd.store.postgres.postgres_store import PostgresStore

    entrant = None if fleet is None else Entrant(fleet.name, fleet.lease_ttl_s)
    lock = await to_thread.run_sync(lock_store, data_dir / FILE)
    try:
        database = await PostgresStore.open(
            settings.url.get_secret_value(),
            schema=settings.schema_name,
            password=settings.read_password(),
            directory=data_dir,
            timeout_s=settings.unavailable_after_s,
            member=entrant,
        )
        membership = None if entrant is None else PostgresMembers(database.identity, entrant)
        try:
            yield database, membership
        finally:
            if membership is not None:
                await membership.close()
            await database.close()
    finally:
        os.close(lock)


async def release_member(settings: StoreSettings, data_dir: Path, fleet: FleetSettings | None) -> str:
    """Declare gone the member that was started last from this data directory; return for people what was done.

    Others then take its servers at once. Raises StoreLocked while the member's process runs, StoreUnavailable,
    ConfigError and OSError.
    """
    if settings.url is None or fleet is None:
        return "nothing to release: this hub is no member of a fleet"
    if not data_dir.is_dir():
        return f"nothing to release: no hub has run in {data_dir}"
    require_database()
    from hubbubd.store.postgres.database import Database
    from hubbubd.store.postgres.release import release

    database = Database(settings.url.get_secret_value(), settings.schema_name, settings.read_password())
    try:
        released = await release(database, fleet.name, data_dir, data_dir / FILE)
    except StoreLocked:
        raise StoreLocked(f"the member {fleet.name} was not declared gone: its process runs ({data_dir})") from None
    if released:
        return f"the member {fleet.name} was declared gone; others take its servers"
    return f"nothing to release: the member {fleet.name} has left the fleet already"


async def check_store(settings: StoreSettings, data_dir: Path) -> str:
    """Check a store without opening or changing it; return a sentence about it for people.

    Raises StoreLocked when a hub has its file open, StoreTooNew, StoreDamaged, StoreUnavailable and ConfigError.
    """
    if settings.url is not None:
        require_database()
        from hubbubd.store.postgres.database import require_reachable

        await require_reachable(settings.url.get_secret_value(), settings.schema_name, settings.read_password())
        return "the database can be used"
    path = data_dir / FILE
    if not path.exists():
        return "it will be made"
    await to_thread.run_sync(check_file, path)
    return "it is sound"


def require_database() -> None:
    """Raise ConfigError unless what a database needs is installed."""
    from importlib.util import find_spec

    if find_spec("asyncpg") is None:
        raise ConfigError(
            "store.url", f"PostgreSQL needs more packages: {installation.make_extra_install_command('postgres')}"
        )
