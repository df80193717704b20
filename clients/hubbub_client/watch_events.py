"""What a watch yields. `resume_token` goes on after the event, in this process or another."""

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from hubbub.v1 import call_pb2
from hubbub_client import reading, records
from hubbub_client.records import CallLog, Progress, Record

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Event:
    """One step of a watch."""

    type: ClassVar[str]
    resume_token: str

    def to_json(self) -> dict[str, Any]:
        """`{type, resume_token, record}`; the record of a removal has only its id, of a reset its reason."""
        return {"type": self.type, "resume_token": self.resume_token, "record": self._record()}

    def _record(self) -> dict[str, Any] | None:
        return None


@dataclass(frozen=True)
class Upsert(Event, Generic[R]):
    """A record is new or has changed."""

    type = "upsert"
    record: R

    def _record(self) -> dict[str, Any]:
        return self.record.to_json()


@dataclass(frozen=True)
class Removed(Event):
    """A record has left the filter, or is gone. `id` is a server's name where servers are watched."""

    type = "removed"
    id: str

    def _record(self) -> dict[str, Any]:
        return {"id": self.id}


@dataclass(frozen=True)
class Synced(Event):
    """The snapshot is complete; what follows are changes."""

    type = "synced"


@dataclass(frozen=True)
class Reset(Event):
    """Forget all records: a fresh snapshot follows."""

    type = "reset"
    reason: str

    def _record(self) -> dict[str, Any]:
        return {"reason": self.reason}


@dataclass(frozen=True)
class Bookmark(Event):
    """Nothing has changed; the token is fresh."""

    type = "bookmark"


@dataclass(frozen=True)
class Progressed(Event):
    """A call has come further; seen live only."""

    type = "progress"
    progress: Progress

    def _record(self) -> dict[str, Any]:
        return self.progress.to_json()


@dataclass(frozen=True)
class Logged(Event):
    """A server wrote a log line about a call; seen live only."""

    type = "log"
    log: CallLog

    def _record(self) -> dict[str, Any]:
        return self.log.to_json()


WatchEvent = Upsert[R] | Removed | Synced | Reset | Bookmark
CallEvent = WatchEvent[records.Call] | Progressed | Logged


def read(kind: type[R], message: Any) -> WatchEvent[R] | None:
    """The event of a watch response; None for one that only a newer client knows."""
    token: str = message.resume_token
    match message.WhichOneof("event"):
        case "upsert":
            return Upsert(token, reading.read(kind, message.upsert))
        case "removed":
            return Removed(token, message.removed.id)
        case "synced":
            return Synced(token)
        case "reset":
            return Reset(token, reading.enum_name(message.reset, "reason").upper())
        case "bookmark":
            return Bookmark(token)
        case _:
            return None


def read_call(message: call_pb2.WatchCallsResponse) -> CallEvent | None:
    """As `read`, with what only calls have."""
    match message.WhichOneof("event"):
        case "progress":
            return Progressed(message.resume_token, reading.read(Progress, message.progress))
        case "log":
            return Logged(message.resume_token, reading.read(CallLog, message.log))
        case _:
            return read(records.Call, message)
