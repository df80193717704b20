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

NAMED: Final = 20
"""As many differences between two stores are named; all are counted."""

OnCopied = Callable[[int, int], None]
"""Is told how many records and tombstones have been copied, and of how many."""


class TargetNotEmpty(StoreError):
    """The target of a copy has records; it was left as it was."""


class SecretsLeft(StoreError):
    """The records have been copied, but the secrets have not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much a store has: its revisions, the numbers of records and of tombstones, and the bytes of all."""

    revision: int
    compacted: int
    records: int
    deletions: int
    size_bytes: int

    @property
    def rows(self) -> int:
        """Records and tombstones."""
        return self.records + self.deletions


class SourceReader(Protocol):
    """One cut of a store."""

    async def extent(self) -> Extent:
        """Return how much there is. Raises StoreUnavailable."""
        ...

    def slices(self) -> AsyncGenerator[Sequence[Row]]:
        """Yield all records and tombstones by key, a bounded number at a time. Raises StoreUnavailable."""
        ...


class TargetWriter(Protocol):
    """An empty store that is being filled."""

    async def add(self, rows: Sequence[Row]) -> None:
        """Add records and tombstones. Raises StoreUnavailable."""
        ...


class LockedStore(Protocol):
    """A store whose lock this process holds."""

    @property
    def name(self) -> str:
        """Where it is, for people, without what is secret."""
        ...

    async def exists(self) -> bool:
        """Return whether there is a store. Raises StoreUnavailable."""
        ...

    def reading(self) -> AbstractAsyncContextManager[SourceReader | None]:
        """Open one cut of the store for a block; None if there is no store yet.

        Raises StoreTooNew, StoreDamaged and StoreUnavailable.
        """
        ...

    def filling(self, extent: Extent) -> AbstractAsyncContextManager[TargetWriter]:
        """Fill the store, which is empty or not there: all that the block adds is there after it, or nothing.

        It gets the revisions of `extent`, and a new id. Raises NoRoom and StoreUnavailable.
        """
        ...


class SecretStore(Protocol):
    """Where the secrets of servers are kept, by server."""

    async def all(self) -> dict[str, dict[str, Any]]:
        """Return all of them."""
        ...

    async def put_all(self, kept: dict[str, dict[str, Any]]) -> None:
        """Replace all of them, durable on return."""
        ...


@dataclass(frozen=True, slots=True)
class Difference:
    """A key that two stores do not have alike, and how."""

    key: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How many keys differ, and the first of them."""

    differing: int = 0
    named: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Transferred:
    """What was done. `copied` is whether anything was written; `secrets` and `compared` are None if not wanted."""

    source: str
    target: str
    extent: Extent
    copied: bool
    secrets: int | None = None
    compared: Comparison | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as the line that `hubbubd` prints."""
        compared = self.compared
        return {
            "event": "copied" if self.copied else "compared",
            "from": self.source,
            "to": self.target,
            "copied": self.copied,
            "records": self.extent.records,
            "deletions": self.extent.deletions,
            "revision": self.extent.revision,
            "secrets": self.secrets,
            "equal": None if compared is None else not compared.differing,
            "differing": None if compared is None else compared.differing,
            "differences": [] if compared is None else [{"key": it.key, "how": it.how} for it in compared.named],
        }


async def transfer(
    source: LockedStore,
    target: LockedStore,
    *,
    verify: bool,
    vaults: tuple[SecretStore, SecretStore] | None = None,
    on_copied: OnCopied,
) -> Transferred:
    """Copy the source to the target, which must be empty, and with `verify` compare both.

    With `verify` a target that has records is compared, and not written. Raises TargetNotEmpty, SecretsLeft and other
    StoreErrors; after any but SecretsLeft the target is as it was.
    """
    async with source.reading() as whole:
        if whole is None:
            raise StoreError(f"there is no store {source.name}")
        extent = await whole.extent()
        there = await _rows(target)
        if there and not verify:
            raise TargetNotEmpty(
                f"the store {target.name} has {there} records already, and was left as it was; name an empty one, or"
                " one that is not there yet; --verify compares them"
            )
        secrets = await _to_carry(*vaults, written=not there) if vaults else None
        if not there:
            await _copy(whole, target, extent, on_copied)
            if vaults and secrets:
                await _carry(secrets, vaults[1], target.name)
        compared = await _compare(whole, target, vaults) if verify else None
    return Transferred(
        source=source.name,
        target=target.name,
        extent=extent,
        copied=not there,
        secrets=None if secrets is None else len(secrets),
        compared=compared,
    )


async def _rows(target: LockedStore) -> int:
    async with target.reading() as there:
        return 0 if there is None else (await there.extent()).rows


async def _copy(whole: SourceReader, target: LockedStore, extent: Extent, on_copied: OnCopied) -> None:
    done = 0
    on_copied(done, extent.rows)
    async with target.filling(extent) as filling, aclosing(whole.slices()) as slices:
        async for rows in slices:
            await filling.add(rows)
            done += len(rows)
            on_copied(done, extent.rows)


async def _to_carry(source: SecretStore, target: SecretStore, *, written: bool) -> dict[str, dict[str, Any]]:
    """Return the secrets of the source. Raises TargetNotEmpty where others would be overwritten."""
    secrets = await source.all()
    if written and await target.all() not in ({}, secrets):
        raise TargetNotEmpty("the target has secrets already; nothing was copied")
    return secrets


async def _carry(secrets: dict[str, dict[str, Any]], target: SecretStore, name: str) -> None:
    try:
        await target.put_all(secrets)
    except (OSError, StoreError) as error:
        raise SecretsLeft(f"the records are in {name}, but the secrets of servers are not: {error}") from error


async def _compare(
    whole: SourceReader, target: LockedStore, vaults: tuple[SecretStore, SecretStore] | None
) -> Comparison:
    differing = 0
    named: list[Difference] = []
    async with target.reading() as other:
        if other is None:
            raise StoreError(f"there is no store {target.name}")
        async with aclosing(differences(whole, other)) as found:
            async for each in found:
                differing += 1
                if len(named) < NAMED:
                    named.append(each)
    if vaults:
        ours, theirs = [await vault.all() for vault in vaults]
        servers = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
        differing += len(servers)
        named += [Difference(name, "its secrets") for name in servers[: NAMED - len(named)]]
    return Comparison(differing=differing, named=tuple(named))


async def differences(source: SourceReader, target: SourceReader) -> AsyncGenerator[Difference]:
    """Yield in what two stores differ but for their ids: first their revisions, under an empty key, then by key."""
    ours, theirs = await source.extent(), await target.extent()
    if ours.revision != theirs.revision:
        yield Difference("", f"the revision, {ours.revision} and {theirs.revision}")
    if ours.compacted != theirs.compacted:
        yield Difference("", f"the revision up to which they are compacted, {ours.compacted} and {theirs.compacted}")
    async with aclosing(_one_by_one(source)) as left, aclosing(_one_by_one(target)) as right:
        mine, other = await anext(left, None), await anext(right, None)
        while mine is not None or other is not None:
            # Text is ordered here as its UTF-8 is in the stores.
            if other is None or (mine is not None and mine[0] < other[0]):
                assert mine is not None
                yield Difference(mine[0], "it is missing in the target")
                mine = await anext(left, None)
            elif mine is None or other[0] < mine[0]:
                yield Difference(other[0], "it is only in the target")
                other = await anext(right, None)
            else:
                if how := _how(mine, other):
                    yield Difference(mine[0], how)
                mine, other = await anext(left, None), await anext(right, None)


def _how(mine: Row, other: Row) -> str:
    if (mine[2] is None) != (other[2] is None):
        return "it is deleted in one of them"
    if mine[2] != other[2]:
        return "its value"
    return f"its revision, {mine[1]} and {other[1]}" if mine[1] != other[1] else ""


async def _one_by_one(reading: SourceReader) -> AsyncGenerator[Row]:
    async with aclosing(reading.slices()) as slices:
        async for rows in slices:
            for row in rows:
                yield row
