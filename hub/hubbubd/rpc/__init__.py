"""The API `hubbub.v1` over gRPC, Connect and gRPC-Web: a thin servicer per service, one table from errors to statuses.

A request goes one way: authentication (auth) -> bytes to message, errors to statuses (methods) -> validation (requests)
-> the runtime -> messages again (convert).
"""
