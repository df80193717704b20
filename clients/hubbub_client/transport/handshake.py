"""Explains why a connection failed, in words that help to fix it; gRPC reports only the failure."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Sequence

from hubbub_client.errors import Unavailable
from hubbub_client.transport.discovery import DNS, UNIX, ClientTls, HubAddress
from hubbub_client.waits import within
from hubbub_shared.platform import sockets

# https://docs.openssl.org/3.0/man3/X509_STORE_CTX_get_error
_EXPIRED, _TOO_EARLY = 10, 9
_OTHER_NAME = (62, 63, 64)
_OTHER_AUTHORITY = (2, 18, 19, 20, 21)


async def unreachable_error(endpoints: Sequence[HubAddress], limit_s: float) -> Unavailable:
    """Return the error for a hub that answers at none of its addresses; its message has the reason for each."""
    tls_problems = await asyncio.gather(*(find_tls_problem(each, limit_s) for each in endpoints))
    addresses, source = ",".join(each.address for each in endpoints), endpoints[0].source
    if len(endpoints) > 1:
        absences = await asyncio.gather(*(explain_absence(each, limit_s) for each in endpoints))
        triples = zip(endpoints, tls_problems, absences, strict=True)
        reasons = [f"{endpoint.address}: {tls_problem or absence}" for endpoint, tls_problem, absence in triples]
        message = f"no hub answers at any of {len(endpoints)} addresses ({source}): {'; '.join(sorted(reasons))}"
    elif tls_problems[0]:
        message = f"no connection to the hub at {addresses} ({source}): {tls_problems[0]}"
    else:
        message = f"no hub answers at {addresses} ({source}); `hubbub up -d` starts one"
    reason = "HANDSHAKE_FAILED" if any(tls_problems) else "HUB_UNREACHABLE"
    return Unavailable(message, reason=reason, metadata={"address": addresses})


async def explain_absence(endpoint: HubAddress, limit_s: float) -> str:
    """Return why an endpoint cannot be reached, by opening a socket to it for at most `limit_s` seconds."""
    try:
        async with within(limit_s):
            _, writer = await _open_socket(endpoint)
            writer.transport.abort()
    except TimeoutError:
        return f"no answer within {limit_s:g} s"
    except socket.gaierror:
        return "its name cannot be looked up"
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        return f"nobody listens there ({why})" if why else "nobody listens there"
    return "somebody listens there, but gives no answer"


async def _open_socket(endpoint: HubAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection to an endpoint, without TLS, and return its reader and writer. Raises OSError, ValueError."""
    if endpoint.target.startswith(UNIX):
        return await sockets.open_unix_connection(endpoint.target.removeprefix(UNIX))
    host, port = _host_and_port(endpoint)
    return await asyncio.open_connection(host, port)


def _host_and_port(endpoint: HubAddress) -> tuple[str, int]:
    """Return host and port of an endpoint that is no socket file; the host without the brackets of IPv6."""
    host, _, port = endpoint.target.removeprefix(DNS).rpartition(":")
    return host.strip("[]"), int(port)


async def find_tls_problem(endpoint: HubAddress, limit_s: float) -> str | None:
    """Return the problem of a TLS handshake; None if it succeeds or nobody answers within `limit_s` seconds."""
    if endpoint.target.startswith(UNIX):
        return None
    host, port = _host_and_port(endpoint)
    try:
        context = _tls_context(endpoint.tls)
    except (ssl.SSLError, ValueError) as error:
        return f"the file of authorities (--ca, HUBBUB_CA) cannot be used: {error}"
    with contextlib.suppress(TimeoutError):
        async with within(limit_s):
            try:
                reader, writer = await asyncio.open_connection(host, port)
            except (OSError, ValueError):  # nobody listens, or the name cannot be looked up
                return None
            try:
                return await _try_handshake(reader, writer, host, context, endpoint)
            finally:
                writer.transport.abort()
    return None


async def _try_handshake(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    host: str,
    context: ssl.SSLContext,
    endpoint: HubAddress,
) -> str | None:
    """Make a TLS handshake over a connection, and return its problem; None if it succeeds."""
    try:
        await writer.start_tls(context, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        return _describe_distrust(error, host)
    except OSError:  # no TLS there: as it should be if the caller wants none
        return "it speaks no TLS, or not as gRPC does; on loopback leave https:// out" if endpoint.tls else None
    if endpoint.tls is None:
        return f"it speaks TLS: use https://{endpoint.target.removeprefix(DNS)}"
    try:
        first_byte = await reader.read(1)  # with TLS 1.3 the server refuses a client certificate only now
    except OSError:
        first_byte = b""
    if not first_byte:
        if endpoint.tls.cert is None:
            return "it wants a client certificate; name one with --cert and --key"
        return "it does not take the client certificate: it is of another authority, expired, or not of its key"
    return None


def _tls_context(tls: ClientTls | None) -> ssl.SSLContext:
    """Return a context for a handshake that verifies the hub; without `tls`, one that trusts every server."""
    if tls is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # nothing is sent over this connection
    else:
        context = ssl.create_default_context(cadata=tls.ca.decode("latin-1") if tls.ca else None)
        # No client certificate here, since the standard library takes it from files only. A hub that wants one hangs
        # up, and `_try_handshake` knows whether the caller gave one.
    context.set_alpn_protocols(["h2"])
    return context


def _describe_distrust(error: ssl.SSLCertVerificationError, host: str) -> str:
    """Return why a server's certificate is not trusted, for people."""
    code = error.verify_code
    if code == _EXPIRED:
        return "its certificate has expired"
    if code == _TOO_EARLY:
        return "its certificate is not valid yet, or a clock is wrong"
    if code in _OTHER_NAME:
        return f"its certificate is not for the name {host}"
    if code in _OTHER_AUTHORITY:
        return "its certificate is of an authority that is not known here; name that with --ca or HUBBUB_CA"
    return f"its certificate is refused: {error.verify_message}"
