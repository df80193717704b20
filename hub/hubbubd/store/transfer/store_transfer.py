"""Copies a store that no hub has open to an empty one, of whatever engine, and compares two stores.

Everything goes in slices, so memory does not grow with the store. The lock of either store is held meanwhile. A copy
that is interrupted leaves its target as it was.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol

from hubbubd.store import StoreError
from hubbubd.store.sqlite.backup import Row

MAX_NAMED: Final = 20
"""The most differences between two stores that are named; all are counted."""

OnCopied = Callable[[int, int], None]
"""Called with how many records and tombstones have been copied, and how many there are."""


class TargetNotEmpty(StoreError):
    """The target of a copy has records; it was left as it was."""


class SecretsNotCopied(StoreError):
    """The records have been copied, but the secrets have not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The extent of a store: its revisions, the numbers of records and of tombstones, and the bytes of all."""

    revision: int
    compacted: int
    records: int
    deletions: int
    size_bytes: int

    @property
    def rows(self) -> int:
        """The number of records and tombstones."""
        return self.records + self.deletions


class SourceReader(Protocol):
    """Reads a store as it is at one moment."""

    async def measure(self) -> Extent:
        """Return how much there is. Raises StoreUnavailable."""
        ...

    def read_slices(self) -> AsyncGenerator[Sequence[Row]]:
        """Yield all records and tombstones by key, a bounded number at a time. Raises StoreUnavailable."""
        ...


class TargetWriter(Protocol):
    """An empty store that is being filled."""

    async def add(self, rows: Sequence[Row]) -> None:
        """Add records and tombstones. Raises StoreError for a key that cannot be kept there, and StoreUnavailable."""
        ...


class LockedStore(Protocol):
    """A store whose lock this process holds."""

    @property
    def name(self) -> str:
        """Where the store is, for people, without secrets."""
        ...

    async def exists(self) -> bool:
        """Return whether there is a store. Raises StoreUnavailable."""
        ...

    def open_reader(self) -> AbstractAsyncContextManager[SourceReader | None]:
        """Open the store for reading during a block, as it is at one moment; yield None if there is no store yet.

        Raises StoreTooNew, StoreDamaged and StoreUnavailable.
        """
        ...

    def open_writer(self, extent: Extent) -> AbstractAsyncContextManager[TargetWriter]:
        """Open the store, which is empty or missing, for a block that fills it: all that it adds is kept, or nothing.

        The store gets the revisions of `extent`, and a new id. Raises NoRoom and StoreUnavailable.
        """
        ...


class SecretStore(Protocol):
    """Where the secrets of servers are stored, by server."""

    async def all(self) -> dict[str, dict[str, Any]]:
        """Return all secrets, by server."""
        ...

    async def put_all(self, secrets: dict[str, dict[str, Any]]) -> None:
        """Store all these secrets, durable on return. Raises StoreError if there are secrets already, and OSError."""
        ...


@dataclass(frozen=True, slots=True)
class Difference:
    """A key that differs between two stores, and how it differs, for people."""

    key: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How many keys differ, and the first of them."""

    differing: int = 0
    first_differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferOutcome:
    """The outcome of a transfer: whether records were `copied`, the number of `secrets`, and what was `comparison`.

    `secrets` is None without vaults, `comparison` without a comparison.
    """

    source: str
    target: str
    extent: Extent
    copied: bool
    secrets: int | None = None
    comparison: Comparison | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `hubbubd` prints as a line."""
        comparison = self.comparison
        return {
            "event": "copied" if self.copied else "compared",
            "from": self.source,
            "to": self.target,
            "copied": self.copied,
            "records": self.extent.records,
            "deletions": self.extent.deletions,
            "revision": self.extent.revision,
            "secrets": self.secrets,
            "equal": None if comparison is None else not comparison.differing,
            "differing": None if comparison is None else comparison.differing,
            "differences": []
            if comparison is None
            else [{"key": each.key, "how": each.description} for each in comparison.first_differences],
        }


async def transfer(
    source: LockedStore,
    target: LockedStore,
    *,
    verify: bool,
    vaults: tuple[SecretStore, SecretStore] | None = None,
    on_copied: OnCopied,
) -> TransferOutcome:
    """Copy the source to the target, which must be empty, and with `verify` compare both.

    With `verify` a target that has records is compared, and not written. `vaults` have the secrets of the source and
    of the target; None leaves secrets out. `on_copied` gets the progress. Raises TargetNotEmpty, SecretsNotCopied and
    other StoreErrors. The target is then as it was, except after SecretsNotCopied or an error in the comparison.
    """
    async with source.open_reader() as reader:
        if reader is None:
            raise StoreError(f"there is no store {source.name}")
        extent = await reader.measure()
        existing_rows = await _count_rows(target)
        if existing_rows and not verify:
            raise TargetNotEmpty(
                f"the store {target.name} has {existing_rows} records already, and was left as it was; name an empty"
                " one, or one that is not there yet; --verify compares them"
            )
        secrets = await _collect_secrets(*vaults, will_write=not existing_rows) if vaults else None
        if not existing_rows:
            await _copy_records(reader, target, extent, on_copied)
            if vaults and secrets:
                await _copy_secrets(secrets, vaults[1], target.name)
        comparison = await _compare(reader, target, vaults) if verify else None
    return TransferOutcome(
        source=source.name,
        target=target.name,
        extent=extent,
        copied=not existing_rows,
        secrets=None if secrets is None else len(secrets),
        comparison=comparison,
    )


async def _count_rows(target: LockedStore) -> int:
    """Return how many records and tombstones a store has; 0 if there is no store yet."""
    async with target.open_reader() as reader:
        return 0 if reader is None else (await reader.measure()).rows


async def _copy_records(reader: SourceReader, target: LockedStore, extent: Extent, on_copied: OnCopied) -> None:
    """Copy all records and tombstones to the empty target, and report the progress to `on_copied`."""
    copied = 0
    on_copied(copied, extent.rows)
    async with target.open_writer(extent) as writer, aclosing(reader.read_slices()) as slices:
        async for rows in slices:
            await writer.add(rows)
            copied += len(rows)
            on_copied(copied, extent.rows)


async def _collect_secrets(source: SecretStore, target: SecretStore, *, will_write: bool) -> dict[str, dict[str, Any]]:
    """Return the secrets of the source. Raises TargetNotEmpty if `will_write` and the target has other secrets."""
    secrets = await source.all()
    if will_write and await target.all() not in ({}, secrets):
        raise TargetNotEmpty("the target has secrets already; nothing was copied")
    return secrets


async def _copy_secrets(secrets: dict[str, dict[str, Any]], target: SecretStore, name: str) -> None:
    """Store the secrets in the vault `target`. `name` is the store that has the records. Raises SecretsNotCopied."""
    try:
        await target.put_all(secrets)
    except (OSError, StoreError) as error:
        raise SecretsNotCopied(f"the records are in {name}, but the secrets of servers are not: {error}") from error


async def _compare(
    reader: SourceReader, target: LockedStore, vaults: tuple[SecretStore, SecretStore] | None
) -> Comparison:
    """Compare the source with the target, and their secrets if there are vaults; return how many keys differ.

    A server whose secrets differ counts as a key. Raises StoreError if there is no target.
    """
    differing = 0
    first_differences: list[Difference] = []
    async with target.open_reader() as target_reader:
        if target_reader is None:
            raise StoreError(f"there is no store {target.name}")
        async with aclosing(find_differences(reader, target_reader)) as differences:
            async for difference in differences:
                differing += 1
                if len(first_differences) < MAX_NAMED:
                    first_differences.append(difference)
    if vaults:
        source_secrets, target_secrets = [await vault.all() for vault in vaults]
        servers = sorted(
            name
            for name in source_secrets.keys() | target_secrets.keys()
            if source_secrets.get(name) != target_secrets.get(name)
        )
        differing += len(servers)
        first_differences += [Difference(name, "its secrets") for name in servers[: MAX_NAMED - len(first_differences)]]
    return Comparison(differing=differing, first_differences=tuple(first_differences))


async def find_differences(source: SourceReader, target: SourceReader) -> AsyncGenerator[Difference]:
    """Yield how two stores differ: first in their revisions, under an empty key, then by key. Store ids may differ."""
    source_extent, target_extent = await source.measure(), await target.measure()
    if source_extent.revision != target_extent.revision:
        yield Difference("", f"the revision, {source_extent.revision} and {target_extent.revision}")
    if source_extent.compacted != target_extent.compacted:
        yield Difference(
            "", f"the revision up to which they are compacted, {source_extent.compacted} and {target_extent.compacted}"
        )
    async with aclosing(_iterate_rows(source)) as source_rows, aclosing(_iterate_rows(target)) as target_rows:
        source_row, target_row = await anext(source_rows, None), await anext(target_rows, None)
        while source_row is not None or target_row is not None:
            # Python orders text by code points, which is the order of UTF-8 in both stores.
            if target_row is None or (source_row is not None and source_row[0] < target_row[0]):
                assert source_row is not None
                yield Difference(source_row[0], "it is missing in the target")
                source_row = await anext(source_rows, None)
            elif source_row is None or target_row[0] < source_row[0]:
                yield Difference(target_row[0], "it is only in the target")
                target_row = await anext(target_rows, None)
            else:
                if description := _describe_difference(source_row, target_row):
                    yield Difference(source_row[0], description)
                source_row, target_row = await anext(source_rows, None), await anext(target_rows, None)


def _describe_difference(source_row: Row, target_row: Row) -> str:
    """Return for people how two rows of one key differ; "" if they are equal."""
    if (source_row[2] is None) != (target_row[2] is None):
        return "it is deleted in one of them"
    if source_row[2] != target_row[2]:
        return "its value"
    return f"its revision, {source_row[1]} and {target_row[1]}" if source_row[1] != target_row[1] else ""


async def _iterate_rows(reader: SourceReader) -> AsyncGenerator[Row]:
    """Yield the rows of a store one by one."""
    async with aclosing(reader.read_slices()) as slices:
        async for rows in slices:
            for row in rows:
                yield row
