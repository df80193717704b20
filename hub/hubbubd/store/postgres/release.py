"""`hubbubd --release`: the life of a member whose process has ended is declared gone, so that nobody waits for it."""

import asyncio
import os
from pathlib import Path

from anyio import to_thread

from hubbubd.store.postgres import sql as sql
from hubbubd.store.postgres.database import CONNECT_S, ERRORS, Database, failed
from hubbubd.store.postgres.identity import PROOFS, read_proofs
from hubbubd.store.sqlite.file import claim

UNDEFINED = frozenset({"42P01", "3F000"})
"""SQLSTATEs of a table or a schema that is not there."""


async def release(database: Database, name: str, data_dir: Path, lock: Path) -> bool:
    """Declare the last life of a member that was started with this data directory gone; return whether it was not.

    `lock` is of what each hub locks that uses the directory. Raises StoreLocked if one does, StoreUnavailable, OSError.
    """
    held = await to_thread.run_sync(claim, lock)
    try:
        proofs = await to_thread.run_sync(read_proofs, data_dir / PROOFS)
        if not proofs:
            return False
        link = await database.connected()
        try:
            async with asyncio.timeout(CONNECT_S):
                return bool(await link.fetch(database.sql(sql.RELEASE), name, proofs))
        except ERRORS as error:
            if getattr(error, "sqlstate", None) in UNDEFINED:
                return False
            raise failed(database.name, error) from error
        finally:
            await asyncio.shield(link.close(timeout=CONNECT_S))
    finally:
        os.close(held)
