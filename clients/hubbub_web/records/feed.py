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

MAX_TOMBSTONES = 4096
"""Tombstones kept for browsers that were away."""

BATCH = 500
"""Rows sent at once."""

BATCH_PAUSE_S = 0.05
"""Pause between two batches, seconds, so that a storm of changes is coalesced."""

HEARTBEAT_S = 5.0
"""Longest silence of a stream, seconds."""

CHECK_S = 1.0
"""Pause between checks of the hub, seconds."""

CHECK_TIMEOUT_S = 3.0
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
    """The short form of a record, or None for a tombstone: the record is gone. `line` is what browsers are sent of the
    row, empty until it is first sent.
    """

    position: int
    fields: dict[str, Any] | None
    line: bytes = field(default=b"", compare=False)


class Feed:
    """All rows, and the watches that keep them."""

    def __init__(self) -> None:
        self._id = secrets.token_hex(8)
        self._rows: OrderedDict[Key, Row] = OrderedDict()
        # By kind, the names of the rows whose records have ended, in the order of their ends.
        self._done: dict[str, OrderedDict[str, None]] = {kind: OrderedDict() for kind in WATCHES}
        # The positions of the tombstones, oldest first, and the position of the last change.
        self._tombstones: OrderedDict[Key, int] = OrderedDict()
        self._position = 0
        # The position of the newest tombstone that was dropped: a browser that is behind it begins from zero.
        self._forgotten = 0
        # By kind, the rows that a new snapshot has not confirmed yet.
        self._unconfirmed: dict[str, set[str]] = {}
        # Kinds that have had a whole snapshot.
        self._synced: set[str] = set()
        self.closed = anyio.Event()
        self._changed = anyio.Event()

    async def follow(self, hub: Hub) -> None:
        """Keep the rows up to date, forever. Raises HubbubError if a retry cannot help."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._check_hub, hub)
            for kind, watch in WATCHES.items():
                group.start_soon(self._watch, kind, watch(hub))

    def close(self) -> None:
        """End all streams."""
        self.closed.set()
        self._wake()

    async def lines(self, token: str) -> AsyncGenerator[bytes, None]:
        """Yield changes as lines of JSON, from `token` on or from the beginning; after each batch a line with a new
        token.

        `reset` means: forget all rows. A stream has a line at least every HEARTBEAT_S seconds.
        """
        position = self._parse_token(token)
        while not self.closed.is_set():
            changed = self._changed
            if len(self._synced) == len(WATCHES):
                lines: list[bytes] = []
                if position is None or position < self._forgotten:
                    lines.append(b'{"reset":true}\n')
                    position = 0
                lines += self._lines_since(position)
                position = self._position
                for start in range(0, len(lines), BATCH):
                    yield b"".join(lines[start : start + BATCH])
            yield json_line({} if position is None else {"token": f"{self._id}-{position}"})
            with anyio.move_on_after(HEARTBEAT_S):
                await changed.wait()
                await anyio.sleep(BATCH_PAUSE_S)

    def put(self, kind: str, name: str, fields: dict[str, Any] | None) -> None:
        """Set a row, or replace it by a tombstone (None), which tells browsers that the record is gone.

        Beyond MAX_TOMBSTONES the oldest tombstone is forgotten: browsers that did not get it must begin again.
        """
        key = (kind, name)
        self._position += 1
        self._rows[key] = Row(self._position, fields)
        self._rows.move_to_end(key)
        self._tombstones.pop(key, None)
        if fields is None:
            self._tombstones[key] = self._position
            if len(self._tombstones) > MAX_TOMBSTONES:
                oldest, self._forgotten = self._tombstones.popitem(last=False)
                del self._rows[oldest]
        self._wake()

    def complete_snapshot(self, kind: str) -> None:
        """Remove the rows of a kind that its new snapshot does not have. Streams begin when all kinds have one."""
        for name in self._unconfirmed.pop(kind, ()):
            self._remove(kind, name)
        self._synced.add(kind)
        self._wake()

    def _parse_token(self, token: str) -> int | None:
        """Return the position in a token; None for a token of another feed, or a token that cannot be read."""
        feed_id, _, position = token.partition("-")
        return whole_text(position) if feed_id == self._id else None

    def _lines_since(self, position: int) -> list[bytes]:
        """Return the lines of all rows that changed after a position, in the order of their changes."""
        lines: list[bytes] = []
        for (kind, name), row in reversed(self._rows.items()):
            if row.position <= position:
                break
            row.line = row.line or json_line({"kind": kind, "id": name, "record": row.fields})
            lines.append(row.line)
        lines.reverse()
        return lines

    def _wake(self) -> None:
        """Let all streams go on."""
        self._changed.set()
        self._changed = anyio.Event()

    async def _check_hub(self, hub: Hub) -> None:
        """Keep the row `hub`, which says whether the hub answers, up to date, forever."""
        sent_status: dict[str, Any] | None = None
        while True:
            status: dict[str, Any] = {"connected": False}
            with contextlib.suppress(HubbubError), anyio.move_on_after(CHECK_TIMEOUT_S):
                await hub.admin.whoami()  # every principal may ask this
                status = {"connected": True}
            if status != sent_status:
                self.put("hub", "hub", status)
                sent_status = status
            await anyio.sleep(CHECK_S)

    async def _watch(self, kind: str, events: AsyncGenerator[WatchEvent[Record] | CallEvent, None]) -> None:
        """Put the events of a watch into the rows of a kind, until the watch ends."""
        async with contextlib.aclosing(events):
            async for event in events:
                match event:
                    case Upsert(record=record):
                        self._upsert(kind, record)
                    case Removed(id=name):
                        self._remove(kind, name)
                    case Progressed(progress=progress):
                        self._set_progress(kind, progress.call_id, brief(progress))
                    case Reset():  # a new snapshot begins: rows that it does not name are removed at its end
                        self._unconfirmed[kind] = {name for row_kind, name in self._rows if row_kind == kind}
                    case Synced():
                        self.complete_snapshot(kind)
                    case _:
                        pass

    def _upsert(self, kind: str, record: Record) -> None:
        """Put a record in its row, with the progress that the row has; keep only the newest MAX_DONE ended records."""
        fields = brief(record)
        name = str(fields.get("id") or fields.get("name"))
        self._unconfirmed.get(kind, set()).discard(name)
        old_row = self._rows.get((kind, name))
        if old_row is not None and old_row.fields and "progress" in old_row.fields:
            fields["progress"] = old_row.fields["progress"]
        self.put(kind, name, fields)
        done = self._done[kind]
        done.pop(name, None)
        if fields.get("done"):
            done[name] = None
            if len(done) > MAX_DONE:
                oldest, _ = done.popitem(last=False)
                self.put(kind, oldest, None)

    def _remove(self, kind: str, name: str) -> None:
        """Replace the row of a record by a tombstone, if the record has a row."""
        self._done[kind].pop(name, None)
        if (kind, name) in self._rows:
            self.put(kind, name, None)

    def _set_progress(self, kind: str, name: str, progress: Mapping[str, Any]) -> None:
        """Add progress to the row of a call; ignore progress of a call that has no row."""
        row = self._rows.get((kind, name))
        if row is not None and row.fields is not None:
            self.put(kind, name, row.fields | {"progress": progress})


def json_line(value: object) -> bytes:
    """Return a value as a line of JSON."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
