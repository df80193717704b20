"""Short forms of the hub's records, kept once for all browsers.

Rows stand in the order of their last change, so a browser's state is its position: what comes after it is new. There
are no buffers; a slow browser gets the newest state of each record, less often (coalescing).
"""

import contextlib
import json
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from hubbub_client.data.records import Record
from hubbub_client.data.watch_events import CallEvent, Progressed, Removed, Reset, Synced, Upsert, WatchEvent
from hubbub_client.errors import HubbubError
from hubbub_client.hub import Hub
from hubbub_client.numbers import whole_text
from hubbub_web.records.brief import brief

Key = tuple[str, str]
Watch = Callable[[Hub], AsyncGenerator[Any, None]]

MAX_DONE = 2000
"""Ended records of one kind that are kept; the hub has the older ones."""

MAX_GONE = 4096
"""Tombstones kept for browsers that were away."""

BATCH = 500
"""Rows sent at once."""

PAUSE_S = 0.05
"""Pause between two batches, seconds, so that a storm of changes is coalesced."""

BEAT_S = 5.0
"""Longest silence of a stream, seconds."""

PULSE_S = 1.0
"""Pause between checks of the hub, seconds."""

PATIENCE_S = 3.0
"""Time limit of a check, seconds."""

WATCHES: Mapping[str, Watch] = {
    "server": lambda hub: hub.servers.watch(),
    "request": lambda hub: hub.inbox.watch(),
    "call": lambda hub: hub.calls.watch(),
    "task": lambda hub: hub.tasks.watch(),
    "list": lambda hub: hub.catalog.watch(),
}


@dataclass(slots=True)
class Row:
    """The short form of a record; None is a tombstone."""

    position: int
    shape: dict[str, Any] | None
    line: bytes = field(default=b"", compare=False)


class Feed:
    """All rows, and the watches that keep them."""

    def __init__(self) -> None:
        self._id = secrets.token_hex(8)
        self._rows: OrderedDict[Key, Row] = OrderedDict()
        self._done: dict[str, OrderedDict[str, None]] = {kind: OrderedDict() for kind in WATCHES}
        self._gone: OrderedDict[Key, int] = OrderedDict()
        self._position = 0
        self._forgotten = 0
        self._stale: dict[str, set[str]] = {}
        self._synced: set[str] = set()
        self.closed = anyio.Event()
        self._changed = anyio.Event()

    async def follow(self, hub: Hub) -> None:
        """Keep the rows up to date, forever. Raises HubbubError if a retry cannot help."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._look_after, hub)
            for kind, watch in WATCHES.items():
                group.start_soon(self._watch, kind, watch(hub))

    def close(self) -> None:
        """End all streams."""
        self.closed.set()
        self._wake()

    async def lines(self, token: str) -> AsyncGenerator[bytes, None]:
        """Yield changes as lines of JSON, from `token` on or from the beginning; after each batch a line with a new
        token.

        `reset` means: forget all rows. A stream has a line at least every BEAT_S seconds.
        """
        position = self._read(token)
        while not self.closed.is_set():
            changed = self._changed
            if len(self._synced) == len(WATCHES):
                news: list[bytes] = []
                if position is None or position < self._forgotten:
                    news.append(b'{"reset":true}\n')
                    position = 0
                news += self._since(position)
                position = self._position
                for start in range(0, len(news), BATCH):
                    yield b"".join(news[start : start + BATCH])
            yield _line({} if position is None else {"token": f"{self._id}-{position}"})
            with anyio.move_on_after(BEAT_S):
                await changed.wait()
                await anyio.sleep(PAUSE_S)

    def put(self, kind: str, name: str, shape: dict[str, Any] | None) -> None:
        """Set a row, or replace it by a tombstone."""
        key = (kind, name)
        self._position += 1
        self._rows[key] = Row(self._position, shape)
        self._rows.move_to_end(key)
        self._gone.pop(key, None)
        if shape is None:
            self._gone[key] = self._position
            if len(self._gone) > MAX_GONE:
                oldest, self._forgotten = self._gone.popitem(last=False)
                del self._rows[oldest]
        self._wake()

    def synced(self, kind: str) -> None:
        """Complete a snapshot: rows of this kind that it did not have are gone."""
        for name in self._stale.pop(kind, ()):
            self._remove(kind, name)
        self._synced.add(kind)
        self._wake()

    def _read(self, token: str) -> int | None:
        name, _, position = token.partition("-")
        return whole_text(position) if name == self._id else None

    def _since(self, position: int) -> list[bytes]:
        found: list[bytes] = []
        for key in reversed(self._rows):
            row = self._rows[key]
            if row.position <= position:
                break
            row.line = row.line or _line({"kind": key[0], "id": key[1], "record": row.shape})
            found.append(row.line)
        found.reverse()
        return found

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _look_after(self, hub: Hub) -> None:
        said: dict[str, Any] | None = None
        while True:
            now: dict[str, Any] = {"connected": False}
            with contextlib.suppress(HubbubError), anyio.move_on_after(PATIENCE_S):
                await hub.admin.whoami()  # every principal may ask this
                now = {"connected": True}
            if now != said:
                self.put("hub", "hub", now)
                said = now
            await anyio.sleep(PULSE_S)

    async def _watch(self, kind: str, steps: AsyncGenerator[WatchEvent[Record] | CallEvent, None]) -> None:
        async with contextlib.aclosing(steps):
            async for step in steps:
                match step:
                    case Upsert(record=record):
                        self._upsert(kind, record)
                    case Removed(id=name):
                        self._remove(kind, name)
                    case Progressed(progress=progress):
                        self._amend(kind, progress.call_id, {"progress": brief(progress)})
                    case Reset():
                        self._stale[kind] = {name for of, name in self._rows if of == kind}
                    case Synced():
                        self.synced(kind)
                    case _:
                        pass

    def _upsert(self, kind: str, record: Record) -> None:
        shape = brief(record)
        name = str(shape.get("id") or shape.get("name"))
        self._stale.get(kind, set()).discard(name)
        before = self._rows.get((kind, name))
        if before is not None and before.shape and "progress" in before.shape:
            shape["progress"] = before.shape["progress"]
        self.put(kind, name, shape)
        done = self._done[kind]
        done.pop(name, None)
        if shape.get("done"):
            done[name] = None
            if len(done) > MAX_DONE:
                self.put(kind, done.popitem(last=False)[0], None)

    def _remove(self, kind: str, name: str) -> None:
        self._done[kind].pop(name, None)
        if (kind, name) in self._rows:
            self.put(kind, name, None)

    def _amend(self, kind: str, name: str, more: Mapping[str, Any]) -> None:
        row = self._rows.get((kind, name))
        if row is not None and row.shape is not None:
            self.put(kind, name, row.shape | dict(more))


def _line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
