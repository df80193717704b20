"""The API `hubbub.v1` over gRPC, Connect and gRPC-Web: a thin servicer per service, one table from errors to statuses.

A request goes one way: `listeners` -> the gate (`auth`) -> `methods`: bytes to a message, errors to statuses; around it
`tracing`, `interceptors`, `fleet` -> `servicers`, which validate it (`messages/requests`) -> the runtime -> messages
again (`messages/api_records`).
"""
