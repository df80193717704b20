"""The screen's view of the hub: bounded lists of records without payloads, kept live by watches."""

from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import anyio

from hubbub_client.data.catalog import CatalogList
from hubbub_client.data.coding_sessions import CodingSession
from hubbub_client.data.hosts import ConnectedHost
from hubbub_client.data.records import (
    Call,
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
from hubbub_frontend.display.records import describe_config_change, question_line, short_call_title
from hubbub_frontend.display.text import line

MAX_ROWS = 1000
# Pause after the hub refused a watch, seconds.
RETRY_S = 2.0

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True, eq=False)
class BoardRow(Generic[R]):
    """One record without payloads, and its subject in one line.

    A change of a record makes another row, so rows are compared by identity.
    """

    key: str
    record: R
    about: str = ""


class Board(Generic[R]):
    """At most `max_rows` rows: the newest, or with `keep_oldest` the oldest.

    `hidden` has the keys of the other rows, each with a word to count it by, such as the kind of a request. `version`
    grows with every change.
    """

    def __init__(self, max_rows: int = MAX_ROWS, *, keep_oldest: bool = False) -> None:
        self.rows: dict[str, BoardRow[R]] = {}
        self.hidden: dict[str, str] = {}
        self.version = 0
        self.synced = False
        self._max_rows = max_rows
        self._keep_oldest = keep_oldest

    def put(self, row: BoardRow[R], word: str = "") -> None:
        """Add or replace a row. Beyond `max_rows`, the oldest row becomes hidden; with `keep_oldest`, the new row.

        Of a hidden row only the key is kept, with `word` to count it by.
        """
        self.version += 1
        if row.key in self.rows:
            self.rows[row.key] = row
            return
        if len(self.rows) >= self._max_rows:
            if self._keep_oldest:
                self.hidden[row.key] = word
                return
            oldest = next(iter(self.rows))
            del self.rows[oldest]
            self.hidden[oldest] = word  # words matter only with `keep_oldest`, so that of the new row will do here
        self.hidden.pop(row.key, None)
        self.rows[row.key] = row

    def drop(self, key: str) -> None:
        """Remove a row, shown or hidden, if there is one."""
        if self.rows.pop(key, None) is not None or self.hidden.pop(key, None) is not None:
            self.version += 1

    def clear(self) -> None:
        """Remove all rows. The board counts as incomplete (not `synced`) until the next snapshot is complete."""
        self.rows.clear()
        self.hidden.clear()
        self.version += 1
        self.synced = False

    @property
    def total(self) -> int:
        """Return how many rows there are, shown or hidden."""
        return len(self.rows) + len(self.hidden)

    def describe_count(self, noun: str) -> str:
        """Return the count in words, and which rows are shown: `the newest 1000 of 1200 calls`."""
        which = "oldest" if self._keep_oldest else "newest"
        visible_part = f"the {which} {len(self.rows)} of " if self.hidden else ""
        return f"{visible_part}{self.total} {noun}{'' if self.total == 1 else 's'}"

    @property
    def can_show_hidden(self) -> bool:
        """Return whether rows are hidden though half of `max_rows` is free: reading all again would show them."""
        return bool(self.hidden) and len(self.rows) < self._max_rows // 2


class Boards:
    """All boards of the screen."""

    def __init__(self, hub: Hub, max_rows: int = MAX_ROWS) -> None:
        self.servers: Board[Server] = Board(max_rows)
        self.open: Board[PendingRequest] = Board(max_rows, keep_oldest=True)
        self.ended: Board[PendingRequest] = Board(max_rows)
        self.calls: Board[Call] = Board(max_rows)
        self.tasks: Board[Task] = Board(max_rows)
        self.lists: Board[CatalogList] = Board(max_rows)
        self.hosts: Board[ConnectedHost] = Board(max_rows)
        self.sessions: Board[CodingSession] = Board(max_rows)
        # The servers that are coding agents, and why the sessions of some cannot be read.
        self.agents: set[str] = set()
        self.agent_problems: dict[str, str] = {}
        # The open pending request of each session of a coding agent, by its server and its id.
        self.session_questions: dict[tuple[str, str], str] = {}
        # Whether the hub has more hosts than were read, and whether this person may not see any.
        self.more_hosts = False
        self.hosts_refused = False
        # The last progress of calls that have not ended, by their ids.
        self.progress: dict[str, Progress] = {}
        self.events: deque[BoardRow[ServerEvent]] = deque(maxlen=max_rows)
        # How many events came in all, and how many the present watch has lost.
        self.events_seen = 0
        self.events_dropped = 0
        # Why the hub refuses a watch, in words.
        self.refusal: str | None = None
        self._hub = hub
        self._max_rows = max_rows

    def watches(self) -> tuple[Callable[[], Any], ...]:
        """Return one function per kind of record whose coroutine keeps its boards live, forever."""
        hub = self._hub
        return (
            lambda: self._follow(hub.servers.watch, self._put_server, self.servers),
            lambda: self._follow(hub.inbox.watch, self._put_request, self.open, self.ended),
            lambda: self._follow(hub.calls.watch, self._put_call_or_progress, self.calls),
            lambda: self._follow(hub.tasks.watch, self._put_task, self.tasks),
            lambda: self._follow(hub.catalog.watch, self._put_catalog_list, self.lists),
            self._follow_events,
        )

    async def read_newest_hosts(self) -> None:
        """Read the newest hosts. While the hub does not answer, those read before stay.

        If this person may not see hosts, none are shown, and `hosts_refused` is set.
        """
        try:
            # One more than is shown, to know whether there are more.
            hosts = await self._hub.hosts.list(limit=self._max_rows + 1)
            self.hosts_refused = False
        except PermissionDenied:
            hosts, self.hosts_refused = (), True
        except HubbubError:
            return
        self.more_hosts = len(hosts) > self._max_rows
        self.hosts.clear()
        for host in hosts[: self._max_rows]:
            self.hosts.put(BoardRow(host.id, host))
        self.hosts.synced = True

    async def follow_sessions(self) -> None:
        """Keep the sessions of coding agents live, forever, and with them the reasons why some cannot be read."""
        from hubbub_frontend.coding_sessions import SessionFeed  # imported late: it is followed once it is shown

        def update_rows() -> None:
            """Set the rows to the sessions that the feed has now."""
            current = {row.key: row.record for row in self.sessions.rows.values()}
            found = {f"{each.server} {each.id}": each for agent in feed.agents.values() for each in agent.sessions}
            for key in current.keys() - found.keys():
                self.sessions.drop(key)
            for key, session in found.items():
                if session != current.get(key):
                    self.sessions.put(BoardRow(key, session, line(session.title)))
            self.agents = set(feed.agents)
            self.agent_problems = {name: agent.problem for name, agent in feed.agents.items() if agent.problem}
            self.refusal = feed.problem or None
            self.sessions.synced = feed.is_read
            self.sessions.version += 1

        feed = SessionFeed(self._hub, update_rows)
        await feed.follow()

    def request(self, id_: str) -> PendingRequest | None:
        """Return a pending request without payloads; None if it is not on a board."""
        row = self.request_row(id_)
        return row.record if row else None

    def request_row(self, id_: str) -> BoardRow[PendingRequest] | None:
        """Return the row of a pending request, open or ended."""
        return self.open.rows.get(id_) or self.ended.rows.get(id_)

    def candidate_requests(self, call: Call) -> list[str]:
        """Return the ids of open pending requests that a call may have caused, where the cause is unknown."""
        if call.ended:
            return []
        ids = [
            row.key
            for row in self.open.rows.values()
            if row.record.server == call.server
            and row.record.call_id is None
            and (not row.record.candidate_call_ids or call.id in row.record.candidate_call_ids)
        ]
        return [*ids, *(id_ for id_ in call.perhaps_pending_ids if id_ in self.open.rows and id_ not in ids)]

    def loading_status(self, board: Board[Any] | None) -> str:
        """Return in words why a board (None: the events) may not show what the hub has; empty if the board does."""
        if not self._hub.connected:
            return "The hub cannot be reached; what there is will be shown here"
        if board is None or board.synced:
            return ""
        return self.refusal or "Loading …"

    def count_open_kinds(self) -> Counter[str]:
        """Count the open pending requests of each kind."""
        return Counter(row.record.kind for row in self.open.rows.values()) + Counter(self.open.hidden.values())

    async def _follow(
        self, watch: Callable[[], AsyncGenerator[Any, None]], put: Callable[[Any], None], *boards: Board[Any]
    ) -> None:
        """Keep boards live by a watch, forever: `put` adds a record to its board.

        The watch begins again after an error, and when hidden rows can be shown.
        """
        while True:
            for board in boards:
                board.clear()
            try:
                async with aclosing(watch()) as events:
                    async for event in events:
                        self.refusal = None
                        self._apply(event, put, boards)
                        if boards[0].can_show_hidden:  # the first of the inbox's two boards has the open requests
                            break
            except HubbubError as error:
                self.refusal = line(error.message)
                await anyio.sleep(RETRY_S)

    def _apply(self, event: Any, put: Callable[[Any], None], boards: tuple[Board[Any], ...]) -> None:
        """Apply an event of a watch: `put` adds a record to its board; a removal or a reset applies to all `boards`."""
        match event:
            case Upsert(record=record) | Progressed(progress=record):
                put(record)
            case Removed(id=id_):
                for board in boards:
                    board.drop(id_)
            case Reset():
                for board in boards:
                    board.clear()
            case Synced():
                for board in boards:
                    board.synced = True
                    board.version += 1
            case _:
                pass

    async def _follow_events(self) -> None:
        """Follow the events of servers until cancelled; again after an error."""

        def set_dropped(count: int) -> None:
            self.events_dropped = count

        while True:
            try:
                async with aclosing(self._hub.events.watch(on_dropped=set_dropped)) as events:
                    async for event in events:
                        self.events_seen += 1
                        bounded = replace(event, params=_bounded_params(event.params))
                        self.events.append(BoardRow(str(self.events_seen), bounded, line(event_line(event))))
            except HubbubError as error:
                self.refusal = line(error.message)
                await anyio.sleep(RETRY_S)

    def _put_server(self, server: Server) -> None:
        """Put a server into its row."""
        self.servers.put(BoardRow(server.name, server))

    def _put_request(self, request: PendingRequest) -> None:
        """Put a pending request into its row, on the board of the open or of the ended ones."""
        self._note_session(request)
        short = replace(request, request=None, changed_arguments=None, answer=_answer_without_content(request.answer))
        row = BoardRow(request.id, short, _subject_line(question_line(request), request.defect))
        if request.state == "open":
            self.open.put(row, request.kind)
        else:
            self.open.drop(request.id)
            self.ended.put(row)

    def _note_session(self, request: PendingRequest) -> None:
        """Note in `session_questions` which open request a session of a coding agent waits for; forget an ended one."""
        agent = request.agent
        if agent is None or not agent.session:
            return
        key = (request.server, agent.session)
        if request.state == "open" and len(self.session_questions) < self._max_rows:
            self.session_questions.setdefault(key, request.id)
        elif request.state != "open" and self.session_questions.get(key) == request.id:
            del self.session_questions[key]

    def _put_call_or_progress(self, record: Call | Progress) -> None:
        """Put a call into its row, without payloads; keep the last progress of a call, of `max_rows` calls at most."""
        if isinstance(record, Progress):
            if len(self.progress) >= self._max_rows:
                del self.progress[next(iter(self.progress))]
            self.progress[record.call_id] = record
            self.calls.version += 1
            return
        if record.ended:
            self.progress.pop(record.id, None)
        error = record.error and replace(record.error, details=None, message=line(record.error.message or ""))
        # Lists show of a result only whether the tool says that it failed, so the rest is dropped.
        result = {"isError": True} if as_object(record.result).get("isError") else None
        short = replace(record, params=None, result=result, error=error)
        self.calls.put(BoardRow(record.id, short, _subject_line(short_call_title(record), record.defect)))

    def _put_task(self, task: Task) -> None:
        """Put a task into its row."""
        self.tasks.put(BoardRow(task.id, replace(task, status_message=line(task.status_message or ""))))

    def _put_catalog_list(self, entries: CatalogList) -> None:
        """Put a list of the catalog into its row."""
        self.lists.put(BoardRow(entries.id, entries))


def _answer_without_content(answer: object) -> object:
    """Return an answer without what a person filled in: only its action, or that it was an error."""
    fields = as_object(answer)
    return {"error": {}} if fields.get("error") is not None else {"action": fields.get("action")}


def event_line(event: ServerEvent) -> str:
    """Return what an event says, by its kind; it may have several lines."""
    params = as_object(event.params)
    match event.kind:
        case "stderr" | "throttled":
            return str(params.get("line", ""))
        case "log":
            return f"{params.get('level')}: {params.get('data')}"
        case "progress":
            total = f"/{params['total']}" if params.get("total") else ""
            return f"{params.get('progress')}{total} {params.get('message') or ''}"
        case "config_reloaded" | "config_problem":
            return describe_config_change(params)
        case _:
            return " ".join((event.method or "", *(f"{name}={value}" for name, value in params.items())))


def _subject_line(subject: str, defect: str | None) -> str:
    """Return the subject of a record in a line; a defect comes first."""
    return line(f"(not whole) {subject}" if defect else subject)


def _bounded_params(params: Any) -> Any:
    """Return the params of an event; if they are long, only their beginning, as text under `shortened`."""
    text = str(params)
    return params if len(text) <= 4000 else {"shortened": text[:4000]}
