"""What servers do otherwise than MCP says, and what it costs: one rule, as a table.

A deviation that does no harm is taken and noted. One that does harm costs what has it: the entry, the message or the
stream, and never the connection, the rest of a list or the calls under way. The operator reads of both in the server's
notes (`ports.Inbound.note`); `docs/servers.md` has this table for people.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Cost(StrEnum):
    """What is lost by a deviation."""

    NOTHING = "nothing"
    ENTRY = "the entry"
    MESSAGE = "the message"
    STREAM = "the stream"


class Deviation(StrEnum):
    """A kind of deviation, and so of a note."""

    INTRODUCTION_MENDED = "introduction_mended"
    ENTRY_MENDED = "entry_mended"
    ENTRY_LEFT_OUT = "entry_left_out"
    LIST_IN_CIRCLES = "list_in_circles"
    LIST_TOO_LONG = "list_too_long"
    EMPTY_LIST = "empty_list"
    RESULT_MENDED = "result_mended"
    CONTENT_UNKNOWN = "content_unknown"
    PING_IGNORED = "ping_ignored"
    PING_ANSWERED_ODDLY = "ping_answered_oddly"
    COOKIE_IGNORED = "cookie_ignored"
    OLDER_TRANSPORT = "older_transport"
    NOTIFICATION_REFUSED = "notification_refused"
    NOTIFICATION_MENDED = "notification_mended"
    NAMES_NO_REQUEST = "names_no_request"
    ASKED_BEFORE_ITS_TIME = "asked_before_its_time"
    RESPONSE_UNASKED = "response_unasked"
    ERROR_WITHOUT_ID = "error_without_id"
    STREAM_CUT = "stream_cut"
    STREAM_REFUSED = "stream_refused"


@dataclass(frozen=True, slots=True)
class Handling:
    """How a deviation is handled: what the server `behavior`, what the hub `reaction` of it, and what that costs."""

    behavior: str
    reaction: str
    cost: Cost


HANDLING: Mapping[Deviation, Handling] = MappingProxyType(
    {
        Deviation.INTRODUCTION_MENDED: Handling(
            "its introduction is not as MCP says", "what is wrong in it is left out or filled in", Cost.NOTHING
        ),
        Deviation.ENTRY_MENDED: Handling(
            "entries of a list are not as MCP says", "what is wrong in them is left out or filled in", Cost.NOTHING
        ),
        Deviation.ENTRY_LEFT_OUT: Handling("entries of a list cannot be used", "they are left out", Cost.ENTRY),
        Deviation.LIST_IN_CIRCLES: Handling(
            "a list leads back to a page that was there before", "the pages until then are taken", Cost.NOTHING
        ),
        Deviation.LIST_TOO_LONG: Handling("a list is too long", "its beginning is taken", Cost.ENTRY),
        Deviation.EMPTY_LIST: Handling(
            "an empty list is where an object belongs", "it is taken as an empty object", Cost.NOTHING
        ),
        Deviation.RESULT_MENDED: Handling(
            "a result is not as MCP says", "what is wrong in it is left out, filled in or becomes text", Cost.NOTHING
        ),
        Deviation.CONTENT_UNKNOWN: Handling(
            "a result has content of an unknown type", "it is passed on as it is, and as text to hosts", Cost.NOTHING
        ),
        Deviation.PING_IGNORED: Handling(
            "it never answers ping", "tools/list is sent in its place (ping_interval_s = 0: nothing is)", Cost.NOTHING
        ),
        Deviation.PING_ANSWERED_ODDLY: Handling(
            "its answer to ping is not as MCP says", "any answer is a sign of life", Cost.NOTHING
        ),
        Deviation.COOKIE_IGNORED: Handling(
            "it set a cookie, and forgot its session",
            "a new session is opened; with cookies = true the cookie goes back, which a load balancer may need",
            Cost.MESSAGE,
        ),
        Deviation.OLDER_TRANSPORT: Handling(
            "it only has HTTP with SSE", 'that is used; transport = "sse" saves the attempt', Cost.NOTHING
        ),
        Deviation.NOTIFICATION_REFUSED: Handling("it refuses a notification", "it goes without it", Cost.MESSAGE),
        Deviation.NOTIFICATION_MENDED: Handling(
            "a notification is not as MCP says", "a log message is shown under the nearest level", Cost.NOTHING
        ),
        Deviation.NAMES_NO_REQUEST: Handling(
            "its notifications name another request, or none, in _meta.requestId",
            "they count for no call",
            Cost.NOTHING,
        ),
        Deviation.ASKED_BEFORE_ITS_TIME: Handling(
            "it asks what only later revisions have", "it is asked as there", Cost.NOTHING
        ),
        Deviation.RESPONSE_UNASKED: Handling("it answers an id that nobody asked", "that is dropped", Cost.MESSAGE),
        Deviation.ERROR_WITHOUT_ID: Handling(
            "it sends errors without an id", "they are of the only request under way, if it is one", Cost.NOTHING
        ),
        Deviation.STREAM_CUT: Handling(
            "its own stream (GET) is cut at about the same age again and again", "it is opened again", Cost.NOTHING
        ),
        Deviation.STREAM_REFUSED: Handling(
            "its own stream (GET) cannot be opened", "it cannot ask outside of calls until it can", Cost.STREAM
        ),
    }
)


def describe_deviation(deviation: Deviation, about: str = "") -> str:
    """Return a note on a deviation, in one sentence; `about` names what deviates."""
    handling = HANDLING[deviation]
    subject = f"{handling.behavior} ({about})" if about else handling.behavior
    return f"{subject}: {handling.reaction}"
