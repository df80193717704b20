"""`hubbubd --copy-store`: copies a store to another one, and prints the progress."""

import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
from pydantic import SecretStr

from hubbub_shared.platform.clocks import elapsed_s
from hubbubd.config.hub import HubSettings
from hubbubd.config.store_addresses import OPTION, DatabaseAddress, StoreAddress, StoreCopy
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


def copy_store(copy: StoreCopy, settings: HubSettings) -> TransferOutcome | None:
    """Copy a store and return the outcome; None if a signal ended the copy. Raises StoreError, OSError, ConfigError."""
    return anyio.run(_copy_until_signal, copy, settings)


async def _copy_until_signal(copy: StoreCopy, settings: HubSettings) -> TransferOutcome | None:
    """Run `copy_or_compare` until it ends or SIGTERM or SIGINT comes; return its outcome, None after a signal."""
    outcome: TransferOutcome | None = None
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks:

            async def cancel_at_signal() -> None:
                await anext(signals)
                tasks.cancel_scope.cancel()

            tasks.start_soon(cancel_at_signal)
            outcome = await copy_or_compare(copy, settings, make_progress_printer(elapsed_s))
            tasks.cancel_scope.cancel()
    return outcome


async def copy_or_compare(copy: StoreCopy, settings: HubSettings, on_copied: OnCopied) -> TransferOutcome:
    """Lock both stores and copy or compare them as `transfer` does; `on_copied` is called with the progress.

    Raises StoreError of every kind, OSError, and ConfigError for a missing setting.
    """
    if copy.secrets:
        check_vaults_exist(copy.source, copy.target)
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(lock_store(copy.source, settings, create=False))
        target = await stack.enter_async_context(lock_store(copy.target, settings, create=True))
        vaults = None
        if copy.secrets:
            vaults = _StoreSecrets(copy.source, source, settings), _StoreSecrets(copy.target, target, settings)
        return await transfer(source, target, verify=copy.verify, vaults=vaults, on_copied=on_copied)


@asynccontextmanager
async def lock_store(address: StoreAddress, settings: HubSettings, *, create: bool) -> AsyncGenerator[LockedStore]:
    """Lock a store for the block; with `create` it need not exist yet. Raises StoreLocked and the engine's errors."""
    if isinstance(address, DatabaseAddress):
        engines.require_database()
        from hubbubd.store.transfer.postgres import lock_database

        async with lock_database(address.url, address.schema, settings.store.read_password()) as database:
            yield database
    else:
        async with lock_file(address.path, may_create=create) as file:
            yield file


def check_vaults_exist(*addresses: StoreAddress) -> None:
    """Raise ConfigError for a store that has no vault: a file other than the store of a data directory."""
    for address in addresses:
        if not isinstance(address, DatabaseAddress) and address.path.name != engines.FILE:
            raise ConfigError(OPTION, f"--secrets needs the {engines.FILE} of a data directory, beside {TOKENS}")


class _StoreSecrets:
    """The secrets that belong to a store; implements `store_transfer.SecretStore`.

    Each method opens the vault again, as the store may be made only after this object.
    """

    def __init__(self, address: StoreAddress, store: LockedStore, settings: HubSettings) -> None:
        """Take an address that `check_vaults_exist` accepts. The lock of a file store covers its data directory."""
        self._address = address
        self._store = store
        self._settings = settings
        if isinstance(address, DatabaseAddress):
            self._keys = _load_vault_keys(settings)

    async def all(self) -> dict[str, dict[str, Any]]:
        """Return all secrets by the name under which they are stored; empty if the database has no store yet."""
        if isinstance(self._address, DatabaseAddress) and not await self._store.exists():
            return {}
        async with self._open_vault() as vault:
            return vault.all()

    async def put_all(self, secrets: dict[str, dict[str, Any]]) -> None:
        """Store secrets in an empty vault, durable on return. Raises OSError, and StoreError if it is not empty."""
        async with self._open_vault() as vault:
            await vault.put_all(secrets)

    @asynccontextmanager
    async def _open_vault(self) -> "AsyncGenerator[TokenFile | PostgresVault]":
        """Open the vault that belongs to the store: `tokens.json` beside its file, or a table of its database."""
        if not isinstance(self._address, DatabaseAddress):
            yield TokenFile.open(self._address.path.parent)
            return
        from hubbubd.store.postgres.vault import PostgresVault

        connection = {"url": SecretStr(self._address.url), "schema_name": self._address.schema}
        vault = await PostgresVault.open(self._settings.store.model_copy(update=connection), self._keys)
        try:
            yield vault
        finally:
            await vault.close()


def _load_vault_keys(settings: HubSettings) -> "VaultKeys":
    """Return the keys of a database's vault, from `[fleet] vault_key_file` or the environment. Raises ConfigError."""
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
    """Return a callback that prints the progress on stderr, at most every PROGRESS_S and at the end.

    Its arguments are the number of copied records and of all. `now` returns monotonic seconds.
    """
    next_print_s = now()

    def on_copied(copied: int, total: int) -> None:
        """Print the progress if PROGRESS_S have passed, or the copy is complete."""
        nonlocal next_print_s
        now_s = now()
        if now_s >= next_print_s or copied == total:
            next_print_s = now_s + PROGRESS_S
            with suppress(OSError):  # stderr may be a closed pipe, which must not end the copy
                console.print_notice([f"{copied} of {total} records copied"])

    return on_copied
