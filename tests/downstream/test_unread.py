"""Responses that hosts do not read."""

from hubbubd.downstream import UnreadBytes
from hubbubd.downstream.hosts.unread_bytes import SMALL_BYTES, UNREAD_BYTES
from hubbubd.errors import ResourceExhausted

from ..raising import raising


def test_what_hosts_of_one_principal_do_not_read_has_a_bound() -> None:
    unread = UnreadBytes()
    with unread.count_response("ada", UNREAD_BYTES - SMALL_BYTES), unread.count_response("ada", SMALL_BYTES):
        with raising(ResourceExhausted, "TOO_MUCH_UNREAD"), unread.count_response("ada", SMALL_BYTES + 1):
            pass
        with unread.count_response("bob", UNREAD_BYTES):
            pass  # others have their own
    with unread.count_response("ada", 2 * UNREAD_BYTES):
        pass  # one may always go
    with unread.count_response("ada", UNREAD_BYTES):
        pass
