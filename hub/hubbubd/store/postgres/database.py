"""Connections to a PostgreSQL database, and what their errors mean."""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, cast
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from hubbubd.store import StoreLocked, StoreTooNew, StoreUnavailable
from hubbubd.store.errors import unavailable_error
from hubbubd.store.postgres import sql as sql

ERRORS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""Whatever goes wrong with a connection, or at its other end. InternalClientError: it ended while it was used."""

CONNECT_S: Final = 5.0
"""Seconds for a connection to be made."""

LOCK_ATTEMPTS: Final = 20
LOCK_PAUSE_S: Final = 0.2
"""How often to try to lock the tables, and seconds between tries, in which members at work go on."""

OLDEST_VERSION: Final = 140000
"""The oldest version of PostgreSQL that is used, as `server_version_num`."""

SESSION: Final = {
    "application_name": "hubbubd",
    "synchronous_commit": "on",
    "lock_timeout": "5s",
    # A hub that is stopped while it opens the store would keep the commits of all others waiting.
    "idle_in_transaction_session_timeout": "10s",
    # A generic plan, or the compiler, would cost more than all the rest of such short statements.
    "jit": "off",
    "plan_cache_mode": "force_custom_plan",
    # A hub that is gone without a word gives up its lock soon.
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
}

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_CERTAIN_CLASSES: Final = frozenset({"22", "23", "25", "28", "3D", "3F", "40", "42", "53", "54", "55", "HB", "P0"})
"""Classes of errors after which a statement has changed nothing; after others its connection may have just broken."""

_ADVICE: Final = {
    "25006": "it is a standby and takes no writes; name the primary, or target_session_attrs=read-write",
    "28P01": "the password is wrong; look at password_file, PGPASSWORD or ~/.pgpass",
    "28000": "it does not let this user in; look at its pg_hba.conf",
    "3D000": "there is no such database; make it with `createdb`",
    "42501": "this user may not do that; let it create and use the schema",
    "53100": "its disk is full; make room",
    "53300": "it has no connection left; raise max_connections",
    "55P03": "its tables are in use, as by pg_dump or a hub that opens it just now; start this hub again afterwards",
    "57P03": "it is starting or stopping; it is tried again",
}


class DatabaseConnection(Protocol):
    """A connection, as far as it is used; the library's own types are incomplete."""

    async def execute(self, query: str, *args: Any) -> str:
        """Run a statement."""
        ...

    async def fetch(self, query: str, *args: Any) -> list[Sequence[Any]]:
        """Return the rows of a query."""
        ...

    async def fetchval(self, query: str, *args: Any) -> Any:
        """Return the first value of the first row; None without one."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """Return a transaction for a block."""
        ...

    async def add_listener(self, channel: str, callback: Callable[[object, int, str, str], None]) -> None:
        """Call `callback(connection, sender's process, channel, text)` for each notice on a channel."""
        ...

    def is_closed(self) -> bool:
        """Return whether the connection has ended."""
        ...

    def terminate(self) -> None:
        """Close the socket at once, without a message to the database."""
        ...

    async def close(self, *, timeout: float) -> None:
        """End the session in order."""
        ...


def is_failure_certain(error: BaseException) -> bool:
    """Return whether the database itself has said that a statement failed, and so changed nothing.

    False for a connection that broke: then the statement may have been carried out.
    """
    return (getattr(error, "sqlstate", None) or "")[:2] in _CERTAIN_CLASSES


def as_store_error(name: str, error: BaseException) -> StoreUnavailable:
    """Return an exception as StoreUnavailable, which says what happened to the store `name` and what to do."""
    if isinstance(error, StoreUnavailable):
        return error
    reason = str(error) or type(error).__name__
    advice = _ADVICE.get(getattr(error, "sqlstate", None) or "")
    if advice is None and isinstance(error, OSError):
        advice = "it cannot be reached; look whether it runs, and at [store] url"
    return unavailable_error(name, advice, reason)


def _split_by_host(url: str) -> deque[str]:
    """Return one URL for each host of a URL that names several (`HOST,HOST`)."""
    try:
        parts = urlsplit(url)
    except ValueError:  # the attempt to connect says what is wrong with the URL
        return deque([url])
    user, at, hosts = parts.netloc.rpartition("@")
    return deque(urlunsplit(parts._replace(netloc=f"{user}{at}{host}")) for host in hosts.split(","))


def _redact_url(url: str) -> str:
    """Return a URL without its password; only its scheme if the password may be in any other part of it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "postgresql://..."
    user, _, hosts = parts.netloc.rpartition("@")
    user = user.partition(":")[0]
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":
        return f"{parts.scheme}://..."
    return f"{parts.scheme}://{user}{'@' if user else ''}{hosts}{parts.path}"


class Database:
    """The address of the store's database. `name` is the address for people, without secrets."""

    def __init__(self, url: str, schema: str, password: str | None) -> None:
        """`password` takes the place of that in the URL; None for the URL's, or what the library finds itself."""
        self.schema = schema
        self._urls = _split_by_host(url)
        """One for each host; the first one is tried first."""
        self._password = password
        self._fresh_id = secrets.token_hex(8)  # of a store or a vault that is made
        self.name = f"{_redact_url(url)}, schema {schema}"

    def for_schema(self, text: str) -> str:
        """Return a statement with this schema and other constants in place of its `{...}`, and a new id for `$id$`."""
        return (
            text.replace("{schema}", f'"{self.schema}"')  # some names are words of SQL
            .replace("{version}", str(sql.SCHEMA_VERSION))
            .replace("{expelled}", sql.EXPELLED)
            .replace("{behind}", sql.BEHIND)
            .replace("$id$", f"'{self._fresh_id}'")
        )

    async def connect(self) -> DatabaseConnection:
        """Make a connection to the first host that answers and fits. Raises StoreUnavailable if there is none.

        Each host has its share of CONNECT_S, so that a silent host leaves time for the next ones. The next call begins
        with the host that has answered, or after the last one that was tried.
        """
        untried = len(self._urls)
        while True:
            url = self._urls[0]
            try:
                return await self._connect_to(url)
            except BaseException as error:  # also when the caller is cancelled: the next attempt begins elsewhere
                if self._urls[0] == url:
                    self._urls.rotate(-1)
                untried -= 1
                if not untried or not isinstance(error, StoreUnavailable):
                    raise

    async def _connect_to(self, url: str) -> DatabaseConnection:
        """Make a connection to one host. Raises StoreUnavailable."""
        try:
            connect, timeout = cast("Any", asyncpg).connect, CONNECT_S / len(self._urls)
            connection = await connect(url, password=self._password, timeout=timeout, server_settings={**SESSION})
            return cast("DatabaseConnection", connection)
        except (*ERRORS, OverflowError) as error:
            raise as_store_error(self.name, error) from error
        except ValueError:  # the error's text repeats what could not be read, which may be of the password
            raise StoreUnavailable(
                f"the store {self.name} failed: its address cannot be read; look at its ports, and write / ? # @ : and"
                " % of a password as %2F %3F %23 %40 %3A and %25, or use password_file, PGPASSWORD or ~/.pgpass"
            ) from None

    async def check_durability(self, connection: DatabaseConnection) -> None:
        """Raise StoreUnavailable unless the database keeps what it confirms, is no standby, and is new enough."""
        problem = await connection.fetchval(
            """SELECT CASE
            WHEN current_setting('server_version_num')::int < $1 THEN 'it is older than PostgreSQL 14'
            WHEN pg_is_in_recovery() THEN 'it is a standby; name the primary'
            WHEN current_setting('fsync') = 'off' THEN 'its fsync is off, so it would lose what it has confirmed'
            WHEN current_setting('full_page_writes') = 'off' THEN 'its full_page_writes is off'
            WHEN current_setting('server_encoding') <> 'UTF8' THEN 'its encoding is not UTF8'
            END""",
            OLDEST_VERSION,
        )
        if problem:
            raise StoreUnavailable(f"the store {self.name} cannot be used: {problem}")

    async def migrate(self, connection: DatabaseConnection, *, alone: bool) -> None:
        """Make the tables of the store, or bring them up to date. To be called within a transaction.

        `alone` says that no member uses them meanwhile. Members of the version before go on, and may be started again,
        until the upgrade is finished (https://martinfowler.com/bliki/ParallelChange.html). Raises StoreTooNew,
        StoreLocked if there are members of still older versions, and ERRORS.
        """
        version = 0
        if await connection.fetchval("SELECT to_regclass($1)", f"{self.schema}.meta") is not None:
            if 1 < await connection.fetchval(self.for_schema(sql.VERSION)) < sql.SCHEMA_VERSION:
                await self._lock_tables(connection)
            version = await self.require_known_version(connection)
        if sql.UPGRADES <= version < sql.SCHEMA_VERSION and not alone:
            await self._require_no_older_members(connection)
        for step in sql.MIGRATIONS[version:]:
            await connection.execute(self.for_schema(step))
        await connection.execute(self.for_schema(sql.MIGRATED))
        await connection.execute(self.for_schema(sql.BESIDE if version else sql.REQUIRE))

    async def require_known_version(self, connection: DatabaseConnection, *, alone: bool = False) -> int:
        """Check that this hub knows the version that the store requires; return the version of the tables.

        The required version stays until the transaction ends. `alone` says that no other hub uses the store: then hubs
        must know this hub's version from now on, which finishes an upgrade. Raises StoreTooNew and ERRORS.
        """
        [(version, required)] = await connection.fetch(self.for_schema(sql.VERSIONS))
        if required > sql.SCHEMA_VERSION:
            raise StoreTooNew(
                f"the store {self.name} is used by newer hubs (schema {required}, this hub knows up to"
                f" {sql.SCHEMA_VERSION}); install their version"
            )
        if alone:
            await connection.execute(self.for_schema(sql.REQUIRE))
        return version

    async def _require_no_older_members(self, connection: DatabaseConnection) -> None:
        """Raise StoreLocked if there are members more than one version of the tables behind."""
        if older_members := ", ".join(name for name, *_ in await connection.fetch(self.for_schema(sql.TOO_OLD))):
            raise StoreLocked(
                f"the store {self.name} is in use by members that are more than one version of its schema behind this"
                f" hub: {older_members}; install the versions in between first, or stop those (one that was killed:"
                " hubbubd --release)"
            )

    async def _lock_tables(self, connection: DatabaseConnection) -> None:
        """Lock the tables, which members use, until the transaction ends. Raises ERRORS after LOCK_ATTEMPTS.

        Between the attempts members go on: an attempt that waits keeps them waiting.
        """
        await connection.execute(self.for_schema(sql.KEEP_VACUUM_OUT))
        for attempts_left in range(LOCK_ATTEMPTS, 0, -1):
            try:
                async with connection.transaction():
                    await connection.execute(self.for_schema(sql.LOCK_TABLES))
                    return
            except asyncpg.LockNotAvailableError:
                if attempts_left == 1:
                    raise
            await asyncio.sleep(LOCK_PAUSE_S)


async def require_reachable(url: str, schema: str, password: str | None) -> str:
    """Return the address, without secrets, of a database that answers and can be used. Raises StoreUnavailable."""
    database = Database(url, schema, password)
    connection = await database.connect()
    try:
        await database.check_durability(connection)
    except ERRORS as error:
        raise as_store_error(database.name, error) from error
    finally:
        await asyncio.shield(connection.close(timeout=CONNECT_S))
    return database.name
