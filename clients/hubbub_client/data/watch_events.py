"""Events of watches. A watch with the `resume_token` of an event goes on after it, also in another process."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, TypeVar

from hubbub.v1 import call_pb2
from hubbub_client.data import conversion, records
from hubbub_client.data.records import CallLog, Progress, Record

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class WatchStep:
    """One step of a watch."""

    type: ClassVar[str]
    resume_token: str

    def to_json(self) -> dict[str, Any]:
        """Return `{type, resume_token, record}`; the record is the id of a removal, and the reason of a reset."""
        # Beside the token, a step has a record, or what stands for one, or nothing.
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "resume_token"}
        record = next((value.to_json() for value in own.values() if isinstance(value, Record)), own or None)
        return {"type": self.type, "resume_token": self.resume_token, "record": record}


@dataclass(frozen=True)
class Upsert(WatchStep, Generic[R]):
    """A record is new or has changed."""

    type = "upsert"
    record: R


@dataclass(frozen=True)
class Removed(WatchStep):
    """A record is gone, or no longer matches the filter. `id` is the name if servers are watched."""

    type = "removed"
    id: str


@dataclass(frozen=True)
class Synced(WatchStep):
    """The snapshot is complete; what follows are changes."""

    type = "synced"


@dataclass(frozen=True)
class Reset(WatchStep):
    """Forget all records: a fresh snapshot follows."""

    type = "reset"
    reason: str


@dataclass(frozen=True)
class Bookmark(WatchStep):
    """Nothing has changed; `resume_token` is the newest."""

    type = "bookmark"


@dataclass(frozen=True)
class Progressed(WatchStep):
    """Progress of a call; live only."""

    type = "progress"
    progress: Progress


@dataclass(frozen=True)
class Logged(WatchStep):
    """A log message of a server about a call; live only."""

    type = "log"
    log: CallLog


WatchEvent = Upsert[R] | Removed | Synced | Reset | Bookmark
CallEvent = WatchEvent[records.Call] | Progressed | Logged


def read(kind: type[R], message: Any) -> WatchEvent[R] | None:
    """Return the event of a watch response, its record as `kind`; None for a type that only newer clients know."""
    token: str = message.resume_token
    match message.WhichOneof("event"):
        case "upsert":
            return Upsert(token, conversion.read(kind, message.upsert))
        case "removed":
            return Removed(token, message.removed.id)
        case "synced":
            return Synced(token)
        case "reset":
            return Reset(token, conversion.enum_name(message.reset, "reason").upper())
        case "bookmark":
            return Bookmark(token)
        case _:
            return None


def read_call(message: call_pb2.WatchCallsResponse) -> CallEvent | None:
    """Return the event of a watch of calls, also progress and log messages; None for a type that newer hubs send."""
    match message.WhichOneof("event"):
        case "progress":
            return Progressed(message.resume_token, conversion.read(Progress, message.progress))
        case "log":
            return Logged(message.resume_token, conversion.read(CallLog, message.log))
        case _:
            return read(records.Call, message)
