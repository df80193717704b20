"""The API `hubbub.v1` over gRPC: one thin servicer per service, one table from errors to statuses.

A request goes one way: credential (auth) -> bytes to message and errors to statuses (methods) -> checked values
(requests) -> the runtime -> messages again (convert).
"""
