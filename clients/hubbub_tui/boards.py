"""The screen's view of the hub: bounded lists of records without payloads, kept live by watches."""

from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import anyio

from hubbub_client.data.records import (
    Call,
    CatalogList,
    ConnectedHost,
    PendingRequest,
    Progress,
    Record,
    Server,
    ServerEvent,
    Task,
)
from hubbub_client.data.watch_events import Progressed, Removed, Reset, Synced, Upsert
from hubbub_client.errors import HubbubError, PermissionDenied
from hubbub_client.hub import Hub
from hubbub_client.payload import as_object
from hubbub_frontend.display.records import call_title, describe_config_change, question_text
from hubbub_frontend.display.text import line

MAX_ROWS = 1000
# Pause after the hub refused a watch, seconds.
RETRY_S = 2.0

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True, eq=False)
class BoardRow(Generic[R]):
    """One record without payloads, and its subject in one line. Each news of a record is another row."""

    key: str
    record: R
    about: str = ""


class Board(Generic[R]):
    """At most `keep` rows: the newest, or with `first` the oldest.

    `hidden` has the keys of the other rows, each with a word to count it by. `version` grows with every change.
    """

    def __init__(self, keep: int = MAX_ROWS, *, first: bool = False) -> None:
        self.rows: dict[str, BoardRow[R]] = {}
        self.hidden: dict[str, str] = {}
        self.version = 0
        self.synced = False
        self._keep = keep
        self._first = first

    def put(self, row: BoardRow[R], word: str = "") -> None:
        """Add or replace a row."""
        self.version += 1
        if row.key in self.rows:
            self.rows[row.key] = row
            return
        if len(self.rows) >= self._keep:
            if self._first:
                self.hidden[row.key] = word
                return
            oldest = next(iter(self.rows))
            del self.rows[oldest]
            self.hidden[oldest] = word
        self.hidden.pop(row.key, None)
        self.rows[row.key] = row

    def drop(self, key: str) -> None:
        """Remove a row."""
        if self.rows.pop(key, None) is not None or self.hidden.pop(key, None) is not None:
            self.version += 1

    def clear(self) -> None:
        """Remove all rows."""
        self.rows.clear()
        self.hidden.clear()
        self.version += 1
        self.synced = False

    @property
    def total(self) -> int:
        """Return how many rows there are, shown or hidden."""
        return len(self.rows) + len(self.hidden)

    def counted(self, noun: str) -> str:
        """Return the count in words, and which rows are kept."""
        which = "oldest" if self._first else "newest"
        some = f"the {which} {len(self.rows)} of " if self.hidden else ""
        return f"{some}{self.total} {noun}{'' if self.total == 1 else 's'}"

    @property
    def wants_more(self) -> bool:
        """Return whether there is room for many hidden rows."""
        return bool(self.hidden) and len(self.rows) < self._keep // 2


class Boards:
    """All boards of the screen."""

    def __init__(self, hub: Hub, keep: int = MAX_ROWS) -> None:
        self.servers: Board[Server] = Board(keep)
        self.open: Board[PendingRequest] = Board(keep, first=True)
        self.ended: Board[PendingRequest] = Board(keep)
        self.calls: Board[Call] = Board(keep)
        self.tasks: Board[Task] = Board(keep)
        self.lists: Board[CatalogList] = Board(keep)
        self.hosts: Board[ConnectedHost] = Board(keep)
        self.more_hosts = False
        self.hosts_refused = False
        self.progress: dict[str, Progress] = {}
        self.events: deque[BoardRow[ServerEvent]] = deque(maxlen=keep)
        self.events_seen = 0
        self.events_dropped = 0
        # Why the hub refuses a watch, in words.
        self.refusal: str | None = None
        self._hub = hub
        self._keep = keep

    def watches(self) -> tuple[Callable[[], Any], ...]:
        """Return the coroutines that keep the boards live; they never end."""
        hub = self._hub
        return (
            lambda: self._follow(hub.servers.watch, self._server, self.servers),
            lambda: self._follow(hub.inbox.watch, self._request, self.open, self.ended),
            lambda: self._follow(hub.calls.watch, self._call, self.calls),
            lambda: self._follow(hub.tasks.watch, self._task, self.tasks),
            lambda: self._follow(hub.catalog.watch, self._list, self.lists),
            self._listen,
        )

    async def read_hosts(self) -> None:
        """Read the newest hosts. While the hub does not answer, those read before stay."""
        try:
            found = await self._hub.hosts.list(limit=self._keep + 1)
            self.hosts_refused = False
        except PermissionDenied:
            found, self.hosts_refused = (), True
        except HubbubError:
            return
        self.more_hosts = len(found) > self._keep
        self.hosts.clear()
        for host in found[: self._keep]:
            self.hosts.put(BoardRow(host.id, host))
        self.hosts.synced = True

    def request(self, id_: str) -> PendingRequest | None:
        """Return a pending request without payloads, if it is kept."""
        row = self.open.rows.get(id_) or self.ended.rows.get(id_)
        return row.record if row else None

    def perhaps_of(self, call: Call) -> list[str]:
        """Return the open pending requests that a call may have caused, where the cause is unknown."""
        if call.ended:
            return []
        found = [
            row.key
            for row in self.open.rows.values()
            if row.record.server == call.server
            and row.record.call_id is None
            and (not row.record.candidate_call_ids or call.id in row.record.candidate_call_ids)
        ]
        return [*found, *(id_ for id_ in call.perhaps_pending_ids if id_ in self.open.rows and id_ not in found)]

    def unknown(self, board: Board[Any] | None) -> str:
        """Return why it is not known what the hub has for a board, or of events (None); empty while it is known."""
        if not self._hub.connected:
            return "The hub cannot be reached; what there is will be shown here"
        return "" if board is None or board.synced else self.refusal or "Loading …"

    def open_kinds(self) -> Counter[str]:
        """Count the open pending requests of each kind."""
        return Counter(row.record.kind for row in self.open.rows.values()) + Counter(self.open.hidden.values())

    async def _follow(
        self, watch: Callable[[], AsyncGenerator[Any, None]], see: Callable[[Any], None], *boards: Board[Any]
    ) -> None:
        while True:
            for board in boards:
                board.clear()
            try:
                async with aclosing(watch()) as events:
                    async for event in events:
                        self.refusal = None
                        self._step(event, see, boards)
                        if boards[0].wants_more:
                            break
            except HubbubError as error:
                self.refusal = line(error.message)
                await anyio.sleep(RETRY_S)

    def _step(self, event: Any, see: Callable[[Any], None], boards: tuple[Board[Any], ...]) -> None:
        match event:
            case Upsert(record=record) | Progressed(progress=record):
                see(record)
            case Removed(id=id_):
                for board in boards:
                    board.drop(id_)
            case Reset() | Synced():
                for board in boards:
                    if isinstance(event, Reset):
                        board.clear()
                    board.synced = isinstance(event, Synced)
                    board.version += 1
            case _:
                pass

    async def _listen(self) -> None:
        def dropped(count: int) -> None:
            self.events_dropped = count

        while True:
            try:
                async with aclosing(self._hub.events.watch(on_dropped=dropped)) as events:
                    async for event in events:
                        self.events_seen += 1
                        params = replace(event, params=_small(event.params))
                        self.events.append(BoardRow(str(self.events_seen), params, line(told(event))))
            except HubbubError as error:
                self.refusal = line(error.message)
                await anyio.sleep(RETRY_S)

    def _server(self, server: Server) -> None:
        self.servers.put(BoardRow(server.name, server))

    def _request(self, request: PendingRequest) -> None:
        short = replace(request, request=None, answer=_gist(request.answer))
        row = BoardRow(request.id, short, _about(question_text(request), request.defect))
        if request.state == "open":
            self.open.put(row, request.kind)
        else:
            self.open.drop(request.id)
            self.ended.put(row)

    def _call(self, seen: Call | Progress) -> None:
        if isinstance(seen, Progress):
            if len(self.progress) >= self._keep:
                del self.progress[next(iter(self.progress))]
            self.progress[seen.call_id] = seen
            self.calls.version += 1
            return
        if seen.ended:
            self.progress.pop(seen.id, None)
        error = seen.error and replace(seen.error, details=None, message=line(seen.error.message or ""))
        result = {"isError": True} if as_object(seen.result).get("isError") else None
        short = replace(seen, params=None, result=result, error=error)
        self.calls.put(BoardRow(seen.id, short, _about(called(seen), seen.defect)))

    def _task(self, task: Task) -> None:
        self.tasks.put(BoardRow(task.id, replace(task, status_message=line(task.status_message or ""))))

    def _list(self, entries: CatalogList) -> None:
        self.lists.put(BoardRow(entries.id, entries))


def _gist(answer: object) -> object:
    """Return of an answer what was done, without what was given."""
    given = as_object(answer)
    return {"error": {}} if given.get("error") is not None else {"action": given.get("action")}


def called(call: Call) -> str:
    """Return what is called: the name of a tool, else the method and what it is about."""
    return call_title(call).removeprefix("tools/call ")


def told(event: ServerEvent) -> str:
    """Return an event in one line."""
    params = as_object(event.params)
    match event.kind:
        case "stderr" | "throttled":
            return str(params.get("line", ""))
        case "log":
            return f"{params.get('level')}: {params.get('data')}"
        case "progress":
            total = params.get("total")
            return f"{params.get('progress')}{f'/{total}' if total else ''} {params.get('message') or ''}"
        case "config_reloaded" | "config_problem":
            return describe_config_change(params)
        case _:
            return " ".join((event.method or "", *(f"{name}={value}" for name, value in params.items())))


def _about(words: str, defect: str | None) -> str:
    """Return the subject of a record in a line; a defect comes first."""
    return line(f"(not whole) {words}" if defect else words)


def _small(params: Any) -> Any:
    text = str(params)
    return params if len(text) <= 4000 else {"shortened": text[:4000]}
