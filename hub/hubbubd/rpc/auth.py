"""Who calls: a bearer token on every RPC but health checks, and optionally the name of a person or program."""

import hmac
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from typing import Any, TypeVar

import grpc

from hubbubd.errors import HubError, InvalidArgument, Unauthenticated
from hubbubd.rpc import status
from hubbubd.telemetry.trace import CALLER, Trace, parsed

LOCAL = "local"
NAME_METADATA = "hubbub-as"
MAX_NAME = 64

Q = TypeVar("Q")
A = TypeVar("A")

OPEN_TO_ALL = "/grpc.health.v1.Health/"
"""Where the paths begin of what needs no credential."""

principal: ContextVar[str] = ContextVar("principal", default=LOCAL)
"""The caller of the RPC that is being served."""


class Authentication(grpc.aio.ServerInterceptor):
    """Lets an RPC in when it brings the token, and notes its principal for the servicers."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Q, A] | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Q, A] | None":
        """The RPC's own handler, or one that refuses it with UNAUTHENTICATED."""
        if not handler_call_details.method.startswith(OPEN_TO_ALL):
            try:
                admit(handler_call_details.invocation_metadata, self._token)
            except HubError as exc:
                return _refusal(exc)
        return await continuation(handler_call_details)


def admit(metadata: Iterable[tuple[str, str | bytes]], token: str) -> None:
    """Notes who calls. Raises Unauthenticated without the token, and InvalidArgument for a name that is none."""
    given = list(metadata)
    _check_token(_values(given, "authorization"), token)
    principal.set(_name(_values(given, NAME_METADATA)))
    CALLER.set(_place(given))


def _place(metadata: list[tuple[str, str | bytes]]) -> Trace | None:
    """The span that the caller names, by the headers of W3C Trace Context."""
    return parsed({key: _text(value) for key, value in metadata if key in ("traceparent", "tracestate")})


def _check_token(credentials: list[str], token: str) -> None:
    if not credentials:
        raise Unauthenticated("a bearer token is needed; the hub's client.json has it", reason="TOKEN_MISSING")
    scheme, _, given = credentials[0].strip().partition(" ")
    known = hmac.compare_digest(given.strip().encode(), token.encode())
    if len(credentials) > 1 or scheme.lower() != "bearer" or not known:
        raise Unauthenticated("this is not the hub's bearer token", reason="TOKEN_INVALID")


def _name(names: list[str]) -> str:
    if not names:
        return LOCAL
    if len(names) > 1 or not 0 < len(names[0]) <= MAX_NAME or not names[0].isprintable():
        raise InvalidArgument.field(f"metadata.{NAME_METADATA}", f"must be one name of 1 to {MAX_NAME} characters")
    return names[0]


def _values(metadata: Iterable[tuple[str, str | bytes]], name: str) -> list[str]:
    return [_text(value) for key, value in metadata if key == name]


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _refusal(exc: HubError) -> "grpc.RpcMethodHandler[Any, Any]":
    # Of the four kinds of handler this is the one that may answer before it has read anything.
    async def refuse(_requests: object, context: status.Context) -> None:
        await status.abort(context, exc)

    return grpc.stream_stream_rpc_method_handler(refuse)
