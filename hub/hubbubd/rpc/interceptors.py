"""Middleware of every authenticated RPC: its audit entry, and the quotas and rate limits of its principal."""

import ipaddress
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import aclosing, contextmanager, nullcontext
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from hubbubd.core.access import Principal
from hubbubd.core.audit import AuditKind
from hubbubd.errors import HubError, InvalidArgument, PermissionDenied, Unauthenticated
from hubbubd.rpc.auth.permissions import RULES, RpcReach
from hubbubd.rpc.context import CallerGroup, current, principal
from hubbubd.runtime.oversight import Attempt, Audit, Quotas
from hubbubd.telemetry.trace import CURRENT_TRACE

MAX_TARGET = 128
"""The most characters of a target in the audit log; ids and names are no longer (`requests.MAX_ID`)."""


CALL_STREAM_RPC = "/hubbub.v1.CallService/StreamCalls"
ANSWER_RPC = "/hubbub.v1.InboxService/AnswerPendingRequest"


class Oversight:
    """Wraps RPCs with audit log, quotas and rate limits; `wrap` is a `methods.Middleware`."""

    def __init__(self, audit: Audit, quotas: Quotas) -> None:
        self._audit = audit
        self.quotas = quotas

    def wrap(self, method: MethodDescriptor, serve: Callable[..., Any]) -> Callable[..., Any]:
        """Return the RPC wrapped with audit log and quotas.

        An RPC that needs no credential gets neither. If it streams, it counts against the quota of streams of a caller
        that has shown a valid credential.
        """
        path = f"/{method.containing_service.full_name}/{method.name}"
        if RULES[path].reach is RpcReach.OPEN:
            return self._wrap_open_stream(serve) if method.server_streaming else serve
        if method.client_streaming:
            return self._wrap_dialogue(path, serve)
        return self._wrap_stream(path, serve) if method.server_streaming else self._wrap_unary(path, serve)

    def wrap_streamed(self, method: MethodDescriptor, serve: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap an RPC within a stream of calls: it counts against its principal's rate limit and quotas."""
        path = f"/{method.containing_service.full_name}/{method.name}"
        quota = self.quotas.streamed_answers if path == ANSWER_RPC else self.quotas.streamed_calls

        async def serve_charged(request: Message) -> Message:
            """Serve the RPC if its caller's rate limit and quota allow that; record a refusal by the rate limit."""
            caller = principal()
            try:
                self.quotas.rpcs.charge(caller.name)
            except HubError as exc:
                raise self.record_refusal(path, exc, caller) from None
            with quota.hold(caller.name):
                return await serve(request)

        return serve_charged

    @contextmanager
    def hold_stream(self, caller: Principal) -> Generator[None]:
        """Count the block as one of the caller's open streams, and charge the caller's rate limit once.

        Raises ResourceExhausted (RPC_RATE_EXCEEDED, TOO_MANY_STREAMS).
        """
        self.quotas.rpcs.charge(caller.name)
        with self.quotas.streams.hold(caller.name):
            yield

    def record_refusal(self, path: str, exc: HubError, caller: Principal) -> HubError:
        """Record that an RPC was refused, and return the error for its caller.

        Invalid arguments are not recorded. A bad credential is charged to the caller's address. After too many bad
        credentials, ResourceExhausted is returned in place of `exc`.
        """
        if not isinstance(exc, InvalidArgument):
            self._audit.record_refusal(_audit_attempt(path, caller), exc.reason)
        if isinstance(exc, Unauthenticated):
            try:
                self.quotas.attempts.charge(_peer_host(current().address))
            except HubError as too_many:
                return too_many
        return exc

    def record_cut_short(self, path: str, exc: HubError, caller: Principal) -> HubError:
        """Record that an RPC was ended midway, and return the error for its caller.

        RPCs whose start or change the audit log records get no second entry.
        """
        rule = RULES.get(path)
        if rule is None or rule.audit is None:
            self._audit.record_refusal(_audit_attempt(path, caller), exc.reason)
        return exc

    def describe_attempt(self, action: str, caller: Principal, target: str) -> Attempt:
        """Return the principal, action and target for the audit entry of something that is no RPC."""
        printable_target = "".join(filter(str.isprintable, target[:MAX_TARGET]))
        peer = _peer_kind(current().address)
        return Attempt(
            principal=caller.name, credential=caller.credential, peer=peer, action=action, target=printable_target
        )

    def peer_host(self) -> str:
        """Return the address from which the current request comes, without its port."""
        return _peer_host(current().address)

    def _wrap_unary(self, path: str, serve: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap an RPC with one response: the audit log records each change, and refusals of reads."""
        kind = RULES[path].audit

        async def serve_change(request: Message) -> Message:
            """Serve an RPC, and record its change and outcome in the audit log."""
            # `or` is only for the type checker: without a kind `serve_read` is returned.
            with self._audit.record_change(_audit_attempt(path, principal(), request), kind or AuditKind.CHANGE):
                return await serve(request)

        async def serve_read(request: Message) -> Message:
            """Serve an RPC that changes nothing; the audit log gets only a refusal for lack of a permission."""
            try:
                return await serve(request)
            except PermissionDenied as exc:
                self._audit.record_refusal(_audit_attempt(path, principal(), request), exc.reason)
                raise

        return serve_read if kind is None else serve_change

    def _wrap_open_stream(self, serve: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a stream that needs no credential; it counts against the quota of a caller with a valid credential."""

        async def serve_counted(request: Message) -> AsyncGenerator[bytes, None]:
            """Yield the responses; meanwhile the stream counts against the quota of a known caller."""
            is_known = current().caller_group is CallerGroup.KNOWN
            with self.quotas.streams.hold(principal().name) if is_known else nullcontext():
                async with aclosing(serve(request)) as responses:
                    async for response in responses:
                        yield response

        return serve_counted

    def _wrap_stream(self, path: str, serve: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap an RPC with many responses: it counts against the quota of streams; its start or refusal is recorded."""
        kind = RULES[path].audit

        async def serve_counted(request: Message) -> AsyncGenerator[bytes, None]:
            """Yield the responses within the caller's quota; record the start, and a missing permission."""
            caller = principal()
            with self.quotas.streams.hold(caller.name):
                if kind is not None:
                    self._audit.record_start(_audit_attempt(path, caller, request), kind)
                try:
                    async with aclosing(serve(request)) as responses:
                        async for response in responses:
                            yield response
                except PermissionDenied as exc:
                    self._audit.record_refusal(_audit_attempt(path, caller, request), exc.reason)
                    raise

        return serve_counted

    def _wrap_dialogue(self, path: str, serve: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap an RPC where both sides stream: it counts against a quota of streams; its start is recorded."""
        kind = RULES[path].audit
        # Counted apart: the library opens streams of calls by itself, and they must not use up the quota of watches.
        quota = self.quotas.call_streams if path == CALL_STREAM_RPC else self.quotas.streams

        async def serve_counted(requests: AsyncIterator[Any], write: Any) -> None:
            """Serve the stream within the caller's quota; record its start, if its kind is recorded."""
            caller = principal()
            with quota.hold(caller.name):
                if kind is not None:
                    self._audit.record_start(_audit_attempt(path, caller), kind)
                await serve(requests, write)

        return serve_counted


def _audit_attempt(path: str, caller: Principal, request: Message | None = None) -> Attempt:
    """Return the principal, action and target for the audit entry of an RPC.

    The action is `?` for an RPC that the hub does not have; the target is empty without a `request`.
    """
    trace = CURRENT_TRACE.get()
    return Attempt(
        principal=caller.name,
        credential=caller.credential,
        peer=_peer_kind(current().address),
        action=path.rpartition("/")[2] if path in RULES else "?",
        target=_audit_target(request) if request is not None else "",
        trace_id=trace.trace_id if trace is not None else "",
    )


def _audit_target(request: Any) -> str:
    """Return the name or id in a request (of a server, record, token or member); empty if there is none."""
    spec = getattr(request, "spec", request)
    for field in ("name", "server", "id", "member"):
        if text := getattr(spec, field, ""):
            return "".join(filter(str.isprintable, text[:MAX_TARGET]))
    return ""


def _peer_host(address: str) -> str:
    """Return a peer's host without port: from `ipv4:127.0.0.1:40000`, `ipv6:%5B::1%5D:40000`, `unix:`, or bare."""
    if address.startswith("unix"):
        return "unix"
    host, _, _ = unquote(address).removeprefix("ipv4:").removeprefix("ipv6:").rpartition(":")
    return host.strip("[]")


@lru_cache(maxsize=1024)
def _peer_kind(address: str) -> str:
    """Return `loopback`, `network` or `unix` for a peer's address; empty where it is unknown."""
    host = _peer_host(address)
    try:
        return "loopback" if ipaddress.ip_address(host).is_loopback else "network"
    except ValueError:
        return host  # "unix", or "" where unknown
