"""Sessions of coding agents behind the hub, as the bridge (`hubbub acp`) offers them as resources.

The bridge bounds what it sends; another server may offer the same resources, so everything is bounded here once more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, cast
from urllib.parse import quote

from hubbub_client import payload
from hubbub_client.data.records import Record
from hubbub_client.numbers import whole
from hubbub_client.payload import as_list, as_object, as_objects

SESSIONS: Final = "acp://sessions"
"""The resource that lists the sessions; a server that has it is a coding agent."""

SessionState = Literal["working", "waiting", "idle", "lost", "unknown"]
STATES: Final[tuple[SessionState, ...]] = ("working", "waiting", "idle", "lost")

MAX_SESSIONS: Final = 500
MAX_ENTRIES: Final = 200
"""Entries of a plan, tool calls and files of a session that are read."""

MAX_TEXT_CHARS: Final = 100_000
MAX_WORDS_CHARS: Final = 2000
MAX_DOCUMENT_CHARS: Final = 64_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEntry:
    """One entry of an agent's plan; ACP has the states pending, in_progress and completed."""

    content: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStep:
    """A tool call that an agent made; ACP has the states pending, in_progress, completed and failed."""

    title: str
    kind: str
    status: str
    paths: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CodingSession(Record):
    """A session of a coding agent. `waiting_for` is the question that it waits for; empty if it waits for none."""

    server: str
    id: str
    agent: str
    cwd: str
    title: str
    state: SessionState
    started_at: datetime | None
    updated_at: datetime | None
    turns: int
    plan: tuple[PlanEntry, ...]
    tools: tuple[ToolStep, ...]
    waiting_for: str
    text: str
    changed: tuple[str, ...]
    stop_reason: str
    error: str


def session_uri(session: str) -> str:
    """Return the URI of a session's transcript."""
    return f"acp://session/{quote(session, safe='')}"


def state_uri(session: str) -> str:
    """Return the URI of a session's state."""
    return f"{session_uri(session)}/state"


def read_sessions(server: str, result: object) -> tuple[CodingSession, ...]:
    """Return the sessions in the result of reading their list. Raises ValueError if it is not such a list."""
    document = _read_document(result)
    if not isinstance(document, list):
        raise ValueError("the list of sessions cannot be read")
    return tuple(_read_session(server, each) for each in as_objects(cast("list[Any]", document))[:MAX_SESSIONS])


def read_session(server: str, result: object) -> CodingSession:
    """Return the session in the result of reading its state. Raises ValueError if it is no such state."""
    document = as_object(_read_document(result))
    if not document.get("id"):
        raise ValueError("the state of the session cannot be read")
    return _read_session(server, document)


def _read_document(result: object) -> Any:
    """Return the JSON document in the result of resources/read. Raises ValueError."""
    contents = as_objects(as_object(result).get("contents"))
    text = contents[0].get("text") if contents else None
    if not isinstance(text, str) or len(text) > MAX_DOCUMENT_CHARS:
        raise ValueError("the resource has no text, or too much of it")
    try:
        return payload.loads(text.encode())
    except (ValueError, RecursionError):
        raise ValueError("the resource is not JSON") from None


def _read_session(server: str, document: Mapping[str, Any]) -> CodingSession:
    """Return a session of a server from its JSON, with bounded texts and lists; missing values are empty."""
    agent, waiting = as_object(document.get("agent")), as_object(document.get("waiting"))
    title, version = _bounded_text(agent.get("title") or agent.get("name")), _bounded_text(agent.get("version"))
    state: SessionState = document["state"] if document.get("state") in STATES else "unknown"
    return CodingSession(
        server=server,
        id=_bounded_text(document.get("id")),
        agent=f"{title} {version}".strip(),
        cwd=_bounded_text(document.get("cwd")),
        title=_bounded_text(document.get("title")),
        state=state,
        started_at=_read_time(document.get("startedAt")),
        updated_at=_read_time(document.get("updatedAt")),
        turns=whole(document.get("turns")) or 0,
        plan=tuple(
            PlanEntry(content=_bounded_text(each.get("content")), status=_bounded_text(each.get("status")))
            for each in as_objects(document.get("plan"))[:MAX_ENTRIES]
        ),
        tools=tuple(
            ToolStep(
                title=_bounded_text(each.get("title")) or _bounded_text(each.get("kind")),
                kind=_bounded_text(each.get("kind")),
                status=_bounded_text(each.get("status")),
                paths=_bounded_texts(each.get("paths")),
            )
            for each in as_objects(document.get("tools"))[-MAX_ENTRIES:]
        ),
        waiting_for=_bounded_text(waiting.get("title") or waiting.get("question")) or ("a person" if waiting else ""),
        text=_bounded_end(document.get("text")),
        changed=_bounded_texts(document.get("changed")),
        stop_reason=_bounded_text(document.get("stopReason")),
        error=_bounded_text(document.get("error")),
    )


def _bounded_text(value: object) -> str:
    """Return a string, cut; empty for any other value."""
    return value[:MAX_WORDS_CHARS] if isinstance(value, str) else ""


def _bounded_end(value: object) -> str:
    """Return a text; only the end of a long one, which is the newest part. Empty for any other value."""
    return value[-MAX_TEXT_CHARS:] if isinstance(value, str) else ""


def _bounded_texts(value: object) -> tuple[str, ...]:
    """Return the strings of a JSON array, at most MAX_ENTRIES, each cut."""
    return tuple(_bounded_text(each) for each in as_list(value)[:MAX_ENTRIES] if isinstance(each, str))


def _read_time(value: object) -> datetime | None:
    """Return the time in a text of ISO 8601, in UTC; None for any other value. Without a time zone, UTC is meant."""
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
        return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
