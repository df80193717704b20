"""`hubbubd --release`: declares a member gone whose process has ended, so that its lease need not run out."""

import asyncio
import os
from pathlib import Path

from anyio import to_thread

from hubbubd.store.postgres import sql as sql
from hubbubd.store.postgres.database import CONNECT_S, ERRORS, Database, as_store_error
from hubbubd.store.postgres.identity import PROOFS_FILE, read_proofs
from hubbubd.store.sqlite.file import lock_store

UNDEFINED = frozenset({"42P01", "3F000"})
"""SQLSTATEs of a table or a schema that is not there."""


async def release(database: Database, name: str, data_dir: Path, lock_path: Path) -> bool:
    """Declare gone the member `name` in its last term, if that was started with this data directory.

    Return False if there is no such term, or it is gone already. Each hub that uses the directory holds the lock of the
    store at `lock_path`. Raises StoreLocked while a hub holds it, StoreUnavailable and OSError.
    """
    lock_descriptor = await to_thread.run_sync(lock_store, lock_path)
    try:
        proofs = await to_thread.run_sync(read_proofs, data_dir / PROOFS_FILE)
        if not proofs:
            return False
        connection = await database.connect()
        try:
            async with asyncio.timeout(CONNECT_S):
                return bool(await connection.fetch(database.for_schema(sql.RELEASE), name, proofs))
        except ERRORS as error:
            if getattr(error, "sqlstate", None) in UNDEFINED:  # no store, so no member
                return False
            raise as_store_error(database.name, error) from error
        finally:
            await asyncio.shield(connection.close(timeout=CONNECT_S))
    finally:
        os.close(lock_descriptor)
