"""A table of notes over a store, to try the ledger and its watches on."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import anyio

from hubbubd.core.access import EVERYTHING, Scope
from hubbubd.runtime.records import EventKind, Ledger, StoreContent, Table, WatcherLimit, delete

from .conftest import FailingStore, Watching, settle


@dataclass(frozen=True)
class Note:
    """A record."""

    id: str
    colour: str = "red"
    text: str = ""


@dataclass(frozen=True)
class Colour:
    """Records of a colour, or all; counts how often it is asked."""

    asked: ClassVar[int] = 0
    colour: str = ""
    scope: Scope = EVERYTHING

    def is_in_scope(self, record: Note, /) -> bool:
        return self.scope.has_server(record.colour)

    def matches(self, record: Note, /) -> bool:
        Colour.asked += 1
        return (not self.colour or record.colour == self.colour) and self.is_in_scope(record)


class Notes:
    """A ledger with one table."""

    def __init__(self, store: FailingStore, stored: StoreContent) -> None:
        self.table = Table(stored, "note", Note)
        self.ledger = Ledger(store, [self.table], stored, now=lambda: 0.0)

    async def put(self, *notes: Note) -> None:
        await self.ledger.transact(lambda: (None, [self.table.change(note.id, note) for note in notes]))

    async def delete(self, note_id: str) -> None:
        await self.ledger.change(self.table, note_id, delete)

    def later(self, note: Note) -> None:
        self.ledger.change_later(self.table, note.id, lambda _: note)

    def watch(self, colour: str = "", token: str = "") -> Any:
        return self.table.feed.watch(Colour(colour), token)


@asynccontextmanager
async def opened(store: FailingStore, *, max_watchers: int = 2000) -> AsyncGenerator[Notes]:
    notes = Notes(store, await StoreContent.read(store, WatcherLimit(max_watchers)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notes.ledger.run)
        tasks.start_soon(notes.ledger.health.run)
        yield notes
        await notes.ledger.flush()
        await notes.ledger.aclose()
        tasks.cancel_scope.cancel()


U, R = EventKind.UPSERT, EventKind.REMOVED
Start = Callable[..., Watching]


def seen(watch: Watching) -> list[str]:
    """The records shown or removed, in order."""
    return [event.id for event in watch.events if event.kind in (U, R)]


async def after(notes: Notes, watching: Start, token: str, colour: str = "") -> Watching:
    """A watch that resumes, once it has caught up."""
    watch = watching(notes.watch(colour, token))
    await settle()
    return watch
