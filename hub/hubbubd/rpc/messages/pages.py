"""Pages of lists. A page token names the last record of its page, so pages do not shift as records come and go."""

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from hubbub.v1 import common_pb2
from hubbubd import bounds, payload
from hubbubd.core.access import Scope
from hubbubd.errors import InvalidArgument
from hubbubd.runtime.records import AgePosition

T = TypeVar("T")
M = TypeVar("M", bound=Message)
Position = tuple[float, str]


class ListRequest(Protocol):
    """The fields that all requests for lists have."""

    page_size: int
    page_token: str
    order: Any


DEFAULT_SIZE = 100
"""Records of a page whose size the caller leaves to the hub."""
MAX_SIZE = 1000
"""Records of the longest page."""

# gRPC clients take 4 MiB unless told otherwise; a page of large records ends early.
_PAGE_BYTES = 3 * 1024 * 1024


def newest_position(record: Any) -> Position:
    """Return a record's position in a list ordered newest first; a record with an invalid time comes last."""
    at: float = record.created_at
    return (-at if bounds.EARLIEST <= at <= bounds.LATEST else 0.0, record.id)


def name_position(record: Any) -> Position:
    """Return a record's position in a list ordered by name."""
    return (0.0, record.name)


def age_position(after: Position | None) -> AgePosition | None:
    """Return a position among the newest as the runtime has it, with the time in front; None for None."""
    return None if after is None else (-after[0], after[1])


def is_backwards(request: ListRequest, backwards: int) -> bool:
    """Return whether the request asks for `backwards`, the reverse of the list's own order. Raises InvalidArgument."""
    if request.order not in common_pb2.Order.values():
        raise InvalidArgument.field("order", f"{request.order} is no known value")
    return request.order == backwards


def is_oldest_first(request: ListRequest) -> bool:
    """Return whether the request reverses a list ordered newest first. Raises InvalidArgument."""
    return is_backwards(request, common_pb2.ORDER_ASCENDING)


def page_records(
    records: Sequence[T],
    request: ListRequest,
    position: Callable[[T], Position],
    convert: Callable[[T], M],
    *,
    list_filter: Message,
    scope: Scope,
    backwards: bool = False,
) -> tuple[list[M], str]:
    """Return one page, converted, ordered by position or `backwards`, and the token of the next, empty at the end.

    `list_filter` is the list's filter and `scope` its caller's; a token is only valid for the same list. Raises
    InvalidArgument.
    """

    def records_after(after: Position | None) -> Iterable[T]:
        """Return the records after a position in the order of the page; all for None."""
        ordered = sorted(records, key=position, reverse=backwards)
        if after is None:
            return ordered
        return [each for each in ordered if (position(each) < after if backwards else position(each) > after)]

    return page_ordered(records_after, request, position, convert, list_filter=list_filter, scope=scope)


def page_ordered(
    rest: Callable[[Position | None], Iterable[T]],
    request: ListRequest,
    position: Callable[[T], Position],
    convert: Callable[[T], M],
    *,
    list_filter: Message,
    scope: Scope,
) -> tuple[list[M], str]:
    """Return one page of records, converted, and the token of the next, empty at the end.

    `rest` yields, in order, the records after a position, for None all. `list_filter` is the list's filter and `scope`
    its caller's; a token is only valid for the same list. Raises InvalidArgument.
    """
    if not 0 <= request.page_size <= MAX_SIZE:
        raise InvalidArgument.field("page_size", f"must be 0 to {MAX_SIZE}")
    digest = _digest_list(list_filter, scope, request.order)
    messages: list[M] = []
    last: Position | None = None
    bytes_left = _PAGE_BYTES
    for record in rest(_decode_token(request.page_token, digest) if request.page_token else None):
        message = convert(record)
        bytes_left -= message.ByteSize()
        if len(messages) == (request.page_size or DEFAULT_SIZE) or (messages and bytes_left < 0):
            assert last is not None
            return messages, _encode_token(last, digest)
        messages.append(message)
        last = position(record)
    return messages, ""


def _digest_list(list_filter: Message, scope: Scope, order: int) -> str:
    """Return what identifies a list: its filter, the caller's scope and the order."""
    raw = f"{list_filter.DESCRIPTOR.full_name} {scope} {order} ".encode() + list_filter.SerializeToString(
        deterministic=True
    )
    return hashlib.sha256(raw).hexdigest()[:12]


def _encode_token(position: Position, digest: str) -> str:
    return urlsafe_b64encode(payload.dumps([digest, *position])).decode().rstrip("=")


def _decode_token(token: str, digest: str) -> Position:
    """Return the position in a page token. Raises InvalidArgument for a token of another list, or no token."""
    try:
        match payload.loads(urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))):
            case [str(of), int() | float() as at, str(name)] if of == digest and bounds.clamp_real(at) == at:
                return at, name
            case _:
                problem = "belongs to another list"
    except ValueError:
        problem = "is not a page token"
    raise InvalidArgument.field("page_token", problem, reason="PAGE_TOKEN_INVALID")
