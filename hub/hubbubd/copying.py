"""`hubbubd --copy-store`: one copy of a store, in a process of its own that says how far it is."""

import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

import anyio

from hubbubd import console
from hubbubd.config.hub import HubSettings
from hubbubd.config.places import OPTION, CopyOrder, DatabasePlace, Place
from hubbubd.errors import ConfigError
from hubbubd.store import engines
from hubbubd.store.transfer import Held, OnCopied, Transferred, Vault, transfer
from hubbubd.store.transfer_sqlite import held_file
from hubbubd.store.vault import NAME as TOKENS
from hubbubd.store.vault import TokenFile

TOLD_S: Final = 1.0
"""Seconds between two words about a long copy."""


def make(order: CopyOrder, settings: HubSettings) -> Transferred | None:
    """Make a copy and return what was done; None if a signal ended it before. Raises as `carry_out`."""
    return anyio.run(_made, order, settings)


async def _made(order: CopyOrder, settings: HubSettings) -> Transferred | None:
    done: Transferred | None = None
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks:

            async def end() -> None:
                await anext(signals)
                tasks.cancel_scope.cancel()

            tasks.start_soon(end)
            done = await carry_out(order, settings, progress(time.monotonic))
            tasks.cancel_scope.cancel()
    return done


async def carry_out(order: CopyOrder, settings: HubSettings, on_copied: OnCopied) -> Transferred:
    """Make a copy, or compare with one that is there, as ordered.

    Raises StoreError of every kind, OSError, and ConfigError for what the settings lack.
    """
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(held(order.source, settings, make=False))
        target = await stack.enter_async_context(held(order.target, settings, make=True))
        vaults = (_vault(order.source, settings), _vault(order.target, settings)) if order.secrets else None
        return await transfer(source, target, verify=order.verify, vaults=vaults, on_copied=on_copied)


@asynccontextmanager
async def held(place: Place, settings: HubSettings, *, make: bool) -> AsyncGenerator[Held]:
    """Hold a store for a block; `make` is whether it need not be there. Raises StoreLocked and as the engines do."""
    if isinstance(place, DatabasePlace):
        engines.require_database()
        from hubbubd.store.transfer_postgres import held_database

        async with held_database(place.url, place.schema, settings.store.password()) as database:
            yield database
    else:
        async with held_file(place.path, make=make) as file:
            yield file


def _vault(place: Place, settings: HubSettings) -> Vault:
    """Return the vault of a store. Raises ConfigError, OSError, and StoreError for a file that does not parse."""
    if isinstance(place, DatabasePlace):
        raise ConfigError(
            OPTION,
            "a database keeps secrets only with [fleet] vault_key_file; without it they stay in"
            f" {TOKENS} of the hub's data directory, so leave out --secrets",
        )
    if place.path.name != engines.FILE:
        # Its lock is that of the data directory: no hub uses the vault meanwhile.
        raise ConfigError(OPTION, f"--secrets needs the {engines.FILE} of a data directory, beside which {TOKENS} is")
    return TokenFile.open(place.path.parent)


def progress(now: Callable[[], float]) -> Callable[[int, int], None]:
    """Return what says on stderr how many records of how many are copied, once in TOLD_S and at the end.

    `now` is a steady time in seconds.
    """
    due = now()

    def tell(done: int, whole: int) -> None:
        nonlocal due
        at = now()
        if at >= due or done == whole:
            due = at + TOLD_S
            with suppress(OSError):  # nobody reads it
                console.welcome([f"{done} of {whole} records copied"])

    return tell
