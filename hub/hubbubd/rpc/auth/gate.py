"""Authentication: the gate that every RPC passes, over gRPC and Connect.

    `authorization: Bearer ...`   the hub's own token (client.json), or one that an authenticator knows
    no `authorization`            the client certificate of the connection, where the hub takes these

`hubbub-as`, or `hubbub-as-bin` for names that are not ASCII, names the person or program on whose behalf a trusted
caller acts (impersonation). Health checks need no credential.
"""

import base64
import hmac
import inspect
import math
import re
import unicodedata
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

import anyio
import grpc

from hubbubd.config.sections.network import is_loopback
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.errors import HubError, InvalidArgument, PermissionDenied, Unauthenticated
from hubbubd.rpc import status
from hubbubd.rpc.auth.permissions import RULES, RpcReach, denied
from hubbubd.rpc.auth.unauthenticated import IdentifyAndServe, UnauthenticatedRpcs
from hubbubd.rpc.context import ANONYMOUS, LOCAL, CallerGroup, Peer, amend_context, current, principal
from hubbubd.rpc.interceptors import Oversight
from hubbubd.rpc.methods import behaviour_name, read_only_request, with_streamed_request
from hubbubd.telemetry.trace import CURRENT_TRACE, parse_trace
from hubbubd.timing.clock import Clock

NAME_METADATA = "hubbub-as"
BINARY_NAME_METADATA = "hubbub-as-bin"
"""The same in UTF-8: gRPC allows only ASCII in metadata keys without the suffix `-bin`."""
MAX_NAME = 64
"""Characters of a name that a caller gives; it stands in every record of theirs."""

MAX_TOKEN = 8192
"""Longest credential, in characters; a longer one is refused unread."""

RESERVED = re.compile(r"hub|\*|(hub|cert|oidc|oidc-role|login):.*", re.IGNORECASE)
"""Names that no caller may take: the hub's own, those that only an authority gives, and the wildcard."""

# RFC 6750, section 2.1; the scheme is case-insensitive (RFC 9110, section 11.1).
_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)

HOST_RPCS = frozenset({"/hubbub.v1.McpService/Serve", "/hubbub.v1.AdminService/GetSelf"})
"""The only RPCs for a credential that is limited to one endpoint for hosts; they check which endpoint it is."""

ENDED_CREDENTIALS = 10_000
"""How many revoked credentials are remembered, for RPCs that were admitted but have not started."""

Q = TypeVar("Q")
A = TypeVar("A")
Metadata = Iterable[tuple[str, str | bytes]]
CertificatePrincipal = Callable[[bytes], Principal]
"""Returns the principal of a verified certificate (PEM or DER). Raises Unauthenticated, PermissionDenied."""


class Authenticator(Protocol):
    """A kind of bearer token."""

    async def principal(self, token: str) -> Principal | None:
        """Return a token's principal; None for a token of another kind. Raises Unauthenticated for an invalid token."""
        ...


def local_principal() -> Principal:
    """Return the principal of callers that show the token in the hub's client.json."""
    return Principal(name=LOCAL, grants=(Grant(Role.ADMIN),), credential=LOCAL, may_name_others=True)


class Gate:
    """Admits callers, and ends their RPCs when their credential ends."""

    def __init__(
        self,
        token: str,
        clock: Clock,
        authenticators: Sequence[Authenticator] = (),
        certificate_principal: CertificatePrincipal | None = None,
        *,
        has_grants: Callable[[Principal], bool] = lambda _: True,
        networked: bool = False,
    ) -> None:
        """`has_grants` returns whether a principal still has all grants it was admitted with.

        `networked` says that other machines reach the hub: then `token` is accepted only from the hub's machine.
        """
        self._token = token.encode()
        self._local_principal = local_principal()
        self._clock = clock
        self._authenticators = authenticators
        self._certificate_principal = certificate_principal
        self._has_grants = has_grants
        self._networked = networked
        self._open_scopes: dict[str, dict[anyio.CancelScope, Principal]] = {}
        """By credential: the cancel scopes of the open RPCs, each with its caller."""
        self._ended_credentials: OrderedDict[str, None] = OrderedDict()
        clock.on_jump(lambda _: self._reset_deadlines())

    async def admit(
        self, path: str, metadata: Metadata, oversight: Oversight, peer: Peer | None = None
    ) -> Principal | None:
        """Authenticate and return the caller; None if that needs the `peer`, and there is none.

        Sets the caller and the trace in the RPC's context, and charges the caller's quota of RPCs. Raises
        Unauthenticated, PermissionDenied, ResourceExhausted, and InvalidArgument for an invalid name.
        """
        if current().principal is not ANONYMOUS:
            amend_context(principal=ANONYMOUS, names_caller=False)
        credentials: list[str] = []
        names: list[str | None] = []
        trace_headers: dict[str, str] = {}
        for key, value in metadata:
            match key.lower():
                case "authorization":
                    credentials.append(_decode_latin(value))
                case name if name == NAME_METADATA:
                    names.append(_decode_latin(value))
                case name if name == BINARY_NAME_METADATA:
                    names.append(_decode_binary(value))
                case "traceparent" | "tracestate" as name:
                    trace_headers[name] = _decode_latin(value)
                case _:
                    pass
        caller = (
            await self._authenticate_bearer(credentials, peer) if credentials else self._authenticate_certificate(peer)
        )
        if caller is None:
            return None
        if names:
            amend_context(principal=caller)  # a refusal of the name is recorded for the caller itself
            caller = _rename_caller(caller, names)
        amend_context(principal=caller, names_caller=bool(names), is_credential_valid=partial(self.is_valid, caller))
        CURRENT_TRACE.set(parse_trace(trace_headers) if trace_headers else None)
        oversight.quotas.rpcs.charge(caller.name)
        if caller.endpoint and path not in HOST_RPCS:
            raise PermissionDenied(
                f"this token is for hosts at {caller.endpoint}: `hubbub tokens create` makes one for the API",
                reason="TOKEN_FOR_ENDPOINT",
                metadata={"endpoint": caller.endpoint},
            )
        rule = RULES.get(path)
        if rule is not None and not rule.admits(caller):
            raise denied(rule.any_of[0], everywhere=rule.reach is RpcReach.HUB)
        return caller

    async def recognise(self, path: str, metadata: Metadata, oversight: Oversight, peer: Peer) -> Principal | None:
        """Return the caller of an RPC that needs no credential; None without a valid one. Sets the caller's group."""
        try:
            caller = await self.admit(path, metadata, oversight, peer)
        except HubError:
            amend_context(principal=ANONYMOUS)
            caller = None
        group = CallerGroup.KNOWN if caller is not None else CallerGroup.LOCAL if peer.local else CallerGroup.AWAY
        amend_context(caller_group=group)
        return caller

    async def _authenticate_bearer(self, credentials: list[str], peer: Peer | None) -> Principal | None:
        """Return the principal of a bearer token; None if that needs the missing `peer`. Raises Unauthenticated."""
        bearer = _BEARER.fullmatch(credentials[0].strip(" ")) if len(credentials[0]) <= MAX_TOKEN else None
        if len(credentials) == 1 and bearer is not None:
            token = bearer[1]
            if hmac.compare_digest(token.encode(), self._token):
                return self._authenticate_local(peer)
            for authenticator in self._authenticators:
                if (caller := await authenticator.principal(token)) is not None:
                    return caller
        raise Unauthenticated("this is no bearer token that the hub knows", reason="TOKEN_INVALID")

    def _authenticate_local(self, peer: Peer | None) -> Principal | None:
        """Return the principal of the hub's own token; None without the `peer`. Raises Unauthenticated."""
        if not self._networked:
            return self._local_principal
        if peer is not None and not peer.local:
            raise Unauthenticated(
                "the token of client.json is for the hub's own machine; `hubbub tokens create` makes one for others",
                reason="TOKEN_LOCAL_ONLY",
            )
        return self._local_principal if peer else None

    def _authenticate_certificate(self, peer: Peer | None) -> Principal | None:
        """Return the principal of a client certificate; None without the `peer`. Raises Unauthenticated."""
        if self._certificate_principal is not None and peer is None:
            return None
        if self._certificate_principal is None or peer is None or peer.certificate is None:
            raise Unauthenticated("a bearer token is needed; the hub's client.json has it", reason="TOKEN_MISSING")
        return self._certificate_principal(peer.certificate)

    def is_valid(self, caller: Principal | None) -> bool:
        """Return whether a credential is valid now: not expired or revoked, with all its grants; True for no caller."""
        if caller is None or caller.credential == LOCAL:  # no credential needed, or one valid until the hub ends
            return True
        has_expired = caller.expires_at is not None and self._clock.now() >= caller.expires_at
        return not has_expired and caller.credential not in self._ended_credentials and self._has_grants(caller)

    @contextmanager
    def while_valid(self, caller: Principal | None, path: str, oversight: Oversight) -> Generator[None]:
        """Run the block (an RPC or a stream's step) while the credential is valid; cancel the block when that ends.

        Raises Unauthenticated (CREDENTIAL_ENDED), or ResourceExhausted after too many bad credentials from the address.
        """
        if current().principal is not caller:  # else `admit` has set it
            amend_context(is_credential_valid=partial(self.is_valid, caller))
        if caller is None or caller.credential == LOCAL:
            yield
            return
        if not self.is_valid(caller):
            raise oversight.record_refusal(path, _credential_ended_error(), caller)
        with anyio.CancelScope() as scope:
            scope.deadline = self._expiry_deadline(caller)
            scopes = self._open_scopes.setdefault(caller.credential, {})
            scopes[scope] = caller
            try:
                yield
            finally:
                del scopes[scope]
                if not scopes and self._open_scopes.get(caller.credential) is scopes:
                    del self._open_scopes[caller.credential]
        if scope.cancelled_caught:
            raise oversight.record_cut_short(path, _credential_ended_error(), caller)

    def _expiry_deadline(self, caller: Principal) -> float:
        """Return when a credential expires, in seconds of the event loop's clock; infinity without an expiry."""
        if caller.expires_at is None:
            return math.inf
        return anyio.current_time() + caller.expires_at - self._clock.now()

    def _reset_deadlines(self) -> None:
        """Recompute all deadlines after the clock has jumped."""
        for scopes in self._open_scopes.values():
            for scope, caller in scopes.items():
                scope.deadline = self._expiry_deadline(caller)

    def end_credential(self, credential: str) -> None:
        """End all RPCs of a revoked credential. Remember it, to refuse RPCs that are admitted but not started."""
        self._ended_credentials[credential] = None
        if len(self._ended_credentials) > ENDED_CREDENTIALS:
            self._ended_credentials.popitem(last=False)
        for scope in self._open_scopes.get(credential, ()):
            scope.cancel()

    def review_grants(self) -> None:
        """End all RPCs whose principal has lost grants."""
        for scopes in self._open_scopes.values():
            for scope, caller in scopes.items():
                if not self._has_grants(caller):
                    scope.cancel()


class Authentication(grpc.aio.ServerInterceptor):
    """The gate as a gRPC interceptor: it runs before the request is read."""

    def __init__(self, gate: Gate, oversight: Oversight) -> None:
        self._gate = gate
        self._oversight = oversight
        self._unauthenticated = UnauthenticatedRpcs()

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Q, A] | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Q, A] | None":
        """Return the RPC's own handler, or one that refuses with UNAUTHENTICATED or PERMISSION_DENIED."""
        path, metadata = handler_call_details.method, handler_call_details.invocation_metadata
        rule = RULES.get(path)
        if rule is not None and rule.reach is RpcReach.OPEN:
            open_handler = await continuation(handler_call_details)
            return open_handler and self._unauthenticated.limit_handler(
                open_handler, self._identify_optional(path, metadata)
            )
        try:
            caller = await self._gate.admit(path, metadata, self._oversight)
        except HubError as exc:
            return self._refusing_handler(path, exc)
        # Default deny: an RPC without a rule does not exist, for any servicer.
        handler = await continuation(handler_call_details) if rule is not None else None
        if caller is not None and (handler is None or caller.credential == LOCAL):  # LOCAL is valid until the hub ends
            return handler
        return self._bind_to_credential(handler or _unimplemented_handler(), path, metadata, caller)

    def _identify_optional(self, path: str, metadata: Metadata) -> IdentifyAndServe:
        """Return middleware that identifies the caller of an RPC without a required credential."""

        async def serve_identified(serve: Callable[[], Awaitable[Any]], context: status.Context) -> Any:
            """Authenticate the caller if there is a credential, and serve the RPC until that credential ends."""
            try:
                caller = await self._gate.recognise(path, metadata, self._oversight, _parse_peer(context))
                with self._gate.while_valid(caller, path, self._oversight):
                    return await serve()
            except HubError as exc:
                await status.abort(context, exc)

        return serve_identified

    def _bind_to_credential(self, handler: Any, path: str, metadata: Metadata, admitted: Principal | None) -> Any:
        """Wrap a handler so that its RPCs end when their caller's credential ends.

        `admitted` is the caller; None if the caller can be authenticated only with its connection known. That happens
        before the request is read, so that a client without a valid credential occupies no RPC while it sends nothing.
        """
        behaviour = getattr(handler, behaviour_name(handler))

        async def serve_while_valid(requests: AsyncIterator[Any], context: status.Context) -> Any:
            """Authenticate the caller unless `admitted`, and serve the RPC until the credential ends."""
            amend_context(address=context.peer())
            try:
                caller = admitted or await self._admit_with_peer(path, metadata, context)
                with self._gate.while_valid(caller, path, self._oversight):
                    request = (
                        _check_each_request(requests) if handler.request_streaming else await _require_request(context)
                    )
                    checked = _CheckedContext(context)
                    response = behaviour(request, checked)
                    return await (
                        _write_responses(response, checked) if inspect.isasyncgenfunction(behaviour) else response
                    )
            except HubError as exc:
                await status.abort(context, exc)

        return with_streamed_request(handler, serve_while_valid)

    async def _admit_with_peer(self, path: str, metadata: Metadata, context: status.Context) -> Principal:
        """Authenticate and return the caller, by its connection too. Records a refusal, and raises it as HubError."""
        try:
            caller = await self._gate.admit(path, metadata, self._oversight, _parse_peer(context))
        except HubError as exc:
            raise self._oversight.record_refusal(path, exc, principal()) from None
        assert caller is not None, "the peer was given"
        return caller

    def _refusing_handler(self, path: str, exc: HubError) -> "grpc.RpcMethodHandler[Any, Any]":
        """Return a handler that refuses an RPC with an error."""

        # gRPC calls the handlers of request streams before it has read a request.
        async def refuse_rpc(_requests: object, context: status.Context) -> None:
            amend_context(address=context.peer())
            await status.abort(context, self._oversight.record_refusal(path, exc, principal()))

        return grpc.stream_stream_rpc_method_handler(refuse_rpc)


async def _write_responses(responses: AsyncIterator[Any], context: "_CheckedContext") -> None:
    """Send the responses of a stream as they come. Raises Unauthenticated (CREDENTIAL_ENDED)."""
    async for response in responses:
        await context.write(response)


async def _require_request(context: status.Context) -> Any:
    """Return the only request of an RPC. Raises InvalidArgument (MALFORMED_REQUEST) if none comes."""
    request = await read_only_request(context)
    if request is None:
        raise InvalidArgument("no request came", reason="MALFORMED_REQUEST")
    return request


async def _check_each_request(requests: AsyncIterator[Any]) -> AsyncGenerator[Any]:
    """Pass a stream's requests on until the credential has ended."""
    async for request in requests:
        _require_valid_credential()
        yield request


class _CheckedContext:
    """The context of an RPC; sends nothing once the credential has ended."""

    def __init__(self, context: status.Context) -> None:
        self._context = context
        self._has_written = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, response: Any) -> None:
        """Send one response of a stream. Raises Unauthenticated (CREDENTIAL_ENDED)."""
        _require_valid_credential()
        # gRPC notes that it has sent the headers only once the first write has ended. A status that came before would
        # be refused, and the caller would never learn that the stream is over.
        with anyio.CancelScope(shield=not self._has_written):
            await self._context.write(response)
        self._has_written = True


def _require_valid_credential() -> None:
    """Raise Unauthenticated (CREDENTIAL_ENDED) once the current caller's credential has ended."""
    if not current().is_credential_valid():
        raise _credential_ended_error()


def _rename_caller(caller: Principal, names: list[str | None]) -> Principal:
    """Return the caller under the only one of `names`. Raises InvalidArgument, and PermissionDenied."""
    # NFC: names that look the same to people are the same. NFKC below: none only looks like a reserved one.
    name = unicodedata.normalize("NFC", names[0] or "")
    if len(names) > 1 or not 0 < len(name) <= MAX_NAME or not name.isprintable() or name != name.strip():
        requirement = f"must be one name of 1 to {MAX_NAME} characters that can be printed, without space around it"
        raise InvalidArgument.field(f"metadata.{NAME_METADATA}", requirement)
    if name == caller.name:
        return caller
    if not caller.may_name_others or RESERVED.fullmatch(unicodedata.normalize("NFKC", name)):
        raise PermissionDenied(
            f"{caller.name} may not call as {name}", reason="NAMING_NOT_ALLOWED", metadata={"name": name}
        )
    return replace(caller, name=name)


def _parse_peer(context: status.Context) -> Peer:
    """Return the other end of a connection, by gRPC's notation: unix:..., ipv4:1.2.3.4:5, ipv6:%5B::1%5D:5."""
    kind, _, address = context.peer().partition(":")  # pyright: ignore[reportUnknownMemberType]
    is_local = kind == "unix" or is_loopback(unquote(address).rpartition(":")[0].strip("[]"))
    auth_context: Mapping[str, Iterable[bytes]] = context.auth_context()  # pyright: ignore[reportUnknownMemberType]
    return Peer(is_local, next(iter(auth_context.get("x509_pem_cert", ())), None))


def _credential_ended_error() -> Unauthenticated:
    """Return the error for a caller whose credential ended during the RPC."""
    return Unauthenticated(
        "the credential of this call has expired, was revoked, or is good for less than it was; call again",
        reason="CREDENTIAL_ENDED",
    )


def _decode_latin(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _decode_binary(value: str | bytes) -> str | None:
    """Decode a binary value, None if invalid. gRPC has decoded it; over HTTP it is base64, padded or not."""
    try:
        raw = value if isinstance(value, bytes) else base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
        return raw.decode()
    except ValueError:
        return None


def _unimplemented_handler() -> "grpc.RpcMethodHandler[Any, Any]":
    """Return a handler that refuses an RPC which the hub does not have."""

    async def refuse_unknown_rpc(_requests: object, context: status.Context) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    return grpc.stream_stream_rpc_method_handler(refuse_unknown_rpc)
