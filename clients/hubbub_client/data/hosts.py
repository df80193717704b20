"""The MCP hosts that use the hub, as records."""

from dataclasses import dataclass
from datetime import datetime

from hubbub_client.data.records import RECORDS, Record


@dataclass(frozen=True, kw_only=True)
class HostRequest(Record):
    """A request of a host that is open, with its call and the pending requests that the call waits for."""

    method: str
    created_at: datetime
    call_id: str | None
    pending_request_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AskedKind(Record):
    """A kind of question (form, url, sampling, roots); `why_not` says why the host is not asked, None if it is."""

    kind: str
    why_not: str | None


@dataclass(frozen=True, kw_only=True)
class ConnectedHost(Record):
    """A host; `name` and `version` are its own words about itself. `endpoint` is `p/PROFILE` or `s/SERVER`.

    A host that is `gone` has nothing open, and has sent no message for a while.
    """

    id: str
    principal: str
    name: str | None
    version: str | None
    protocol_version: str
    transport: str
    endpoint: str
    has_session: bool
    created_at: datetime
    last_used_at: datetime
    requests: tuple[HostRequest, ...]
    stream_open: bool = False
    gone: bool = False
    questions: tuple[AskedKind, ...] = ()


RECORDS.update({kind.__name__: kind for kind in (HostRequest, AskedKind, ConnectedHost)})
