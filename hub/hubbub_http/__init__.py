"""HTTP connections within bounds: those of the hub, and those of `hubbub web`.

connection.py    one connection: its parser, its bounds, strangers
write_buffer.py  what is written in one turn of the loop, sent together
"""

from hubbub_http.connection import CERTIFICATE, CUT, GONE, LET_IN, HttpConnection, make_connection_class

__all__ = ["CERTIFICATE", "CUT", "GONE", "LET_IN", "HttpConnection", "make_connection_class"]
