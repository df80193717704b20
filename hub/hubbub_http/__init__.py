"""HTTP connections within bounds: those of the hub, and those of `hubbub web`.

connection.py    one connection: its parser, its bounds, strangers
write_buffer.py  what is written in one turn of the loop, sent together
"""

from hubbub_http.connection import (
    CERTIFICATE,
    CUT,
    MARK_AUTHENTICATED,
    WATCH_END,
    HttpConnection,
    make_connection_class,
)

__all__ = ["CERTIFICATE", "CUT", "MARK_AUTHENTICATED", "WATCH_END", "HttpConnection", "make_connection_class"]
