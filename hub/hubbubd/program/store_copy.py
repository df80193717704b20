"""`hubbubd --copy-store`: one copy of a store, in a process of its own that says how far it is."""

import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
from pydantic import SecretStr

from hubbub_shared.platform.clocks import elapsed_s
from hubbubd.config.hub import HubSettings
from hubbubd.config.store_addresses import OPTION, DatabasePlace, Place, StoreCopy
from hubbubd.errors import ConfigError
from hubbubd.program import console
from hubbubd.store import engines
from hubbubd.store.transfer.sqlite import lock_file
from hubbubd.store.transfer.store_transfer import LockedStore, OnCopied, TransferOutcome, transfer
from hubbubd.store.vault.file import NAME as TOKENS
from hubbubd.store.vault.file import TokenFile

if TYPE_CHECKING:
    from hubbubd.store.postgres.vault import PostgresVault
    from hubbubd.store.vault.keys import VaultKeys

PROGRESS_S: Final = 1.0
"""Seconds between two lines about the progress of a copy."""


def copy_store(order: StoreCopy, settings: HubSettings) -> TransferOutcome | None:
    """Make a copy and return what was done; None if a signal ended it. Raises StoreError, OSError and ConfigError."""
    return anyio.run(_copy_until_signal, order, settings)


async def _copy_until_signal(order: StoreCopy, settings: HubSettings) -> TransferOutcome | None:
    """Copy or compare as ordered, and return what was done; None if a signal ended it before."""
    done: TransferOutcome | None = None
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks:

            async def cancel_at_signal() -> None:
                await anext(signals)
                tasks.cancel_scope.cancel()

            tasks.start_soon(cancel_at_signal)
            done = await copy_or_compare(order, settings, make_progress_printer(elapsed_s))
            tasks.cancel_scope.cancel()
    return done


async def copy_or_compare(order: StoreCopy, settings: HubSettings, on_copied: OnCopied) -> TransferOutcome:
    """Copy a store, or compare two, as ordered; `on_copied` is called with the progress.

    Raises StoreError of every kind, OSError, and ConfigError for what the settings lack.
    """
    if order.secrets:
        require_vaults(order.source, order.target)
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(hold_store(order.source, settings, create=False))
        target = await stack.enter_async_context(hold_store(order.target, settings, create=True))
        vaults = None
        if order.secrets:
            vaults = _Secrets(order.source, source, settings), _Secrets(order.target, target, settings)
        return await transfer(source, target, verify=order.verify, vaults=vaults, on_copied=on_copied)


@asynccontextmanager
async def hold_store(place: Place, settings: HubSettings, *, create: bool) -> AsyncGenerator[LockedStore]:
    """Lock a store for the block; with `create` it need not exist yet. Raises StoreLocked and as the engines do."""
    if isinstance(place, DatabasePlace):
        engines.require_database()
        from hubbubd.store.transfer.postgres import lock_database

        async with lock_database(place.url, place.schema, settings.store.read_password()) as database:
            yield database
    else:
        async with lock_file(place.path, may_create=create) as file:
            yield file


def require_vaults(*places: Place) -> None:
    """Raise ConfigError for a place without secrets: a file that is not the store in a hub's data directory."""
    for place in places:
        if not isinstance(place, DatabasePlace) and place.path.name != engines.FILE:
            raise ConfigError(OPTION, f"--secrets needs the {engines.FILE} of a data directory, beside {TOKENS}")


class _Secrets:
    """The secrets that belong to a store; implements `store_transfer.SecretStore`.

    The vault that has them is opened for each use: the store may not be there before.
    """

    def __init__(self, place: Place, store: LockedStore, settings: HubSettings) -> None:
        """Note the place, which `require_vaults` has checked. A file's lock is that of its data directory."""
        self._place = place
        self._store = store
        self._settings = settings
        if isinstance(place, DatabasePlace):
            self._keys = _load_vault_keys(settings)

    async def all(self) -> dict[str, dict[str, Any]]:
        """Return the secrets by the names under which they are stored; none if the database has no store yet."""
        if isinstance(self._place, DatabasePlace) and not await self._store.exists():
            return {}
        async with self._open_vault() as vault:
            return vault.all()

    async def put_all(self, secrets: dict[str, dict[str, Any]]) -> None:
        """Store all these secrets, durable on return. Raises StoreError where there are some already, and OSError."""
        async with self._open_vault() as vault:
            await vault.put_all(secrets)

    @asynccontextmanager
    async def _open_vault(self) -> "AsyncGenerator[TokenFile | PostgresVault]":
        """Open the vault that belongs to the store: `tokens.json` beside its file, or a table of its database."""
        if not isinstance(self._place, DatabasePlace):
            yield TokenFile.open(self._place.path.parent)
            return
        from hubbubd.store.postgres.vault import PostgresVault

        there = {"url": SecretStr(self._place.url), "schema_name": self._place.schema}
        vault = await PostgresVault.open(self._settings.store.model_copy(update=there), self._keys)
        try:
            yield vault
        finally:
            await vault.close()


def _load_vault_keys(settings: HubSettings) -> "VaultKeys":
    """Return the keys of a database's vault. Raises ConfigError."""
    from hubbubd.store.vault.keys import VARIABLE, VaultKeys

    file = settings.fleet.vault_key_file if settings.fleet is not None else None
    if file is None and VARIABLE not in os.environ:
        raise ConfigError(
            OPTION,
            "a database keeps secrets only with [fleet] vault_key_file; without it they stay in"
            f" {TOKENS} of the hub's data directory, so leave out --secrets",
        )
    return VaultKeys.load(file, os.environ)


def make_progress_printer(now: Callable[[], float]) -> Callable[[int, int], None]:
    """Return a callback that prints on stderr how many records are copied, every PROGRESS_S and at the end.

    `now` returns monotonic seconds.
    """
    due = now()

    def on_copied(done: int, whole: int) -> None:
        """Print the progress if that is due, or the copy is complete."""
        nonlocal due
        at = now()
        if at >= due or done == whole:
            due = at + PROGRESS_S
            with suppress(OSError):  # nobody reads it
                console.inform([f"{done} of {whole} records copied"])

    return on_copied
