"""Requests over HTTP to one server, over the connections of all: one hop each, redirects within an origin, access."""

import asyncio
import os
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from typing import Final, Protocol
from urllib.parse import urljoin
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from multidict import CIMultiDict
from yarl import URL

from hubbub_shared import __version__
from hubbubd.config import ServerConfig
from hubbubd.config.policy.hosts import HostRules
from hubbubd.errors import Fault, PermissionDenied
from hubbubd.timing.limited import run_with_limit
from hubbubd.upstream import faults
from hubbubd.upstream.http import body
from hubbubd.upstream.http.connections import CURRENT_SEND, SendWatch
from hubbubd.upstream.http.cookies import ServerCookies
from hubbubd.upstream.messages.retries import SendProgress
from hubbubd.upstream.ports import Permit

MAX_REDIRECTS: Final = 20
"""How many redirects of one request are followed."""

WRITE_BYTES: Final = 256 * 1024
"""Bytes of a request that are handed to the system at once."""

REST_BYTES: Final = 64 * 1024
"""Bytes of an unneeded body that are read at most, so that its connection can be used again."""

REST_LIMIT_S: Final = 0.5
"""Seconds that such a body may take to end."""

DEFAULT_HEADERS: Final = {"Accept-Encoding": "identity", "User-Agent": f"hubbub/{__version__}"}
"""Headers of each request, unless the configuration has others. A compressed body could grow beyond every bound."""

FRAMING: Final = frozenset({"content-length", "expect", "transfer-encoding"})
"""Headers, in lower case, that say where a request ends: with others, one request could become two."""

# RFC 9110, 5.6.2 and 5.5
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

KEEPS_METHOD: Final = (307, 308)
"""Statuses of redirects that apply to a POST as well."""
REDIRECTS: Final = (301, 302, 303, *KEEPS_METHOD)
"""Statuses of redirects."""


class HttpFailure(Exception):
    """A request had no response, or its body broke off.

    `may_have_arrived` says that the server may have received the request. `timed_out` says that a time limit ended it;
    the connection did not break.
    """

    def __init__(self, fault: Fault, *, may_have_arrived: bool, timed_out: bool = False) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.may_have_arrived = may_have_arrived
        self.timed_out = timed_out


@dataclass(slots=True)
class HttpRequest:
    """A request. It fails if nothing arrives for `read_timeout_s` (None: no limit). `progress` is the last hop's."""

    method: str
    url: URL
    headers: CIMultiDict[str]
    content: bytes | None = None
    _: KW_ONLY
    read_timeout_s: float | None = None
    progress: SendProgress = field(default_factory=SendProgress)


class HttpResponse:
    """A response whose body is still to come. It must be closed, or read to its end."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    @property
    def content_type(self) -> str:
        """The content type, in lower case."""
        return self.headers.get("content-type", "").lower()

    @property
    def is_compressed(self) -> bool:
        """Whether the body has a coding. The hub asks for none, and decodes none: it could grow beyond every bound."""
        return self.headers.get("content-encoding", "identity").strip().lower() not in ("identity", "")

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the body as they arrive. Raises HttpFailure when the connection breaks before its end."""
        content = self._response.content
        try:
            while chunk := await content.readany():
                yield chunk
        except (aiohttp.ClientError, OSError) as exc:
            raise _failure_from(exc) from exc

    async def read(self, limit: int) -> bytes:
        """Return the body, of at most `limit` bytes. Raises HttpFailure, body.BodyTooLarge."""
        if (size := self._response.content_length) is not None and size > limit:
            raise body.BodyTooLarge(limit)
        try:
            return await body.read_whole(self._response.content.readany, limit)
        except (aiohttp.ClientError, OSError) as exc:
            raise _failure_from(exc) from exc

    async def read_beginning(self, limit: int, timeout_s: float) -> bytes:
        """Return the first `limit` bytes of the body that arrive within `timeout_s` seconds, and close the response."""
        beginning = bytearray()
        try:
            async with asyncio.timeout(timeout_s):
                async for chunk in self.chunks():
                    beginning += chunk
                    if len(beginning) >= limit:
                        break
        except (HttpFailure, TimeoutError):
            pass  # what arrived until then
        finally:
            self.close()
        return bytes(beginning[:limit])

    async def drain_and_close(self) -> None:
        """Read the rest of a body that is short and arrives soon, to reuse its connection; then close the response."""
        if not self._response.content.at_eof():
            await self.read_beginning(REST_BYTES, REST_LIMIT_S)
        self.close()

    def close(self) -> None:
        """Close the connection, or return it to the pool if the body was read to its end."""
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


Hop = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Sends a request as it is. Raises HttpFailure, and UpstreamError (HOST_NOT_ALLOWED)."""


class AccessLayer(Protocol):
    """Adds credentials to the requests to one server."""

    async def send(self, request: HttpRequest, hop: Hop) -> HttpResponse:
        """Send a request over `hop`, with credentials. Raises HttpFailure, UpstreamError."""
        ...


class HttpClient:
    """Sends the requests to one server. It waits for responses without limit, as people take minutes to answer."""

    def __init__(
        self,
        config: ServerConfig,
        session: aiohttp.ClientSession,
        tls: ssl.SSLContext,
        hosts: HostRules | None,
        access: AccessLayer | None,
        *,
        permit: Permit | None = None,
    ) -> None:
        self._permit = permit
        self._session = session
        self._tls = tls
        self._hosts = hosts
        self._access = access
        self._connect_timeout_s = config.connect_timeout_s
        self.cookies = ServerCookies(URL(config.url or ""), is_enabled=config.cookies)
        # No proxy where hosts are restricted: it would resolve names itself, past the checks of `hosts`.
        self._proxies = Proxies({} if hosts is not None else getproxies())
        self._headers = CIMultiDict(DEFAULT_HEADERS)
        for name, value in config.headers.items():
            self._headers[name] = _check_header(name, value.get_secret_value())

    def build_headers(self, extra: Mapping[str, str]) -> CIMultiDict[str]:
        """Return the headers of a request: those of the configuration, and `own`, which win."""
        headers = self._headers.copy()
        headers.update(extra)
        return headers

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request. Redirects that stay within its origin and keep its method are followed.

        Any other redirect is returned. Raises HttpFailure, UpstreamError.
        """
        for redirects_left in range(MAX_REDIRECTS, -1, -1):
            response = await (
                self.send_hop(request) if self._access is None else self._access.send(request, self.send_hop)
            )
            target = redirect_target(request, response)
            if target is None or not redirects_left:
                return response
            await response.drain_and_close()
            request.url = target
        raise AssertionError("unreachable")

    async def send_hop(self, request: HttpRequest) -> HttpResponse:
        """Send a request as it is, without following redirects, and store the cookies of the response; a `Hop`.

        Waits for the permit first, where one is needed. Raises HttpFailure, and UpstreamError for a forbidden host.
        """
        if self._permit is not None:
            await self._permit()
        if self._hosts is not None:
            try:
                # The pool checks what a name means when it is resolved; an address is not resolved.
                self._hosts.check_host(request.url.raw_host or "")
            except PermissionDenied as exc:
                raise faults.error("HOST_NOT_ALLOWED", exc.message, host=request.url.host) from None
        request.progress = progress = SendProgress()
        watch = SendWatch(progress)
        CURRENT_SEND.set(watch)
        content = None
        if request.content is not None:
            content = _Content(request.content, progress, self._connect_timeout_s, self._permit)
        proxy, proxy_headers = self._proxies.proxy_for(request.url)
        headers = request.headers
        if proxy_headers is not None and request.url.scheme == "http":  # over TLS, only the proxy may see it
            headers = CIMultiDict(headers)
            headers.update(proxy_headers)
        if (cookie := self.cookies.build_header(request.url, headers.get("cookie"))) is not None:
            headers = CIMultiDict(headers)
            headers["cookie"] = cookie
        try:
            response = await self._session.request(
                request.method,
                request.url,
                headers=headers,
                data=content,
                allow_redirects=False,
                ssl=self._tls,
                proxy=proxy,
                proxy_headers=proxy_headers,
                timeout=_time_limits(self._connect_timeout_s, request.read_timeout_s),
            )
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            watch.note_failure(exc)
            raise _failure_from(exc) from exc
        finally:
            watch.close()
        self.cookies.store(request.url, response.headers.getall("set-cookie", ()))
        return HttpResponse(response)


@lru_cache
def _time_limits(connect_s: float, read_timeout_s: float | None) -> aiohttp.ClientTimeout:
    """Return aiohttp's limits for these seconds, None for no limit; cached, as most requests have the same."""
    return aiohttp.ClientTimeout(total=None, connect=connect_s, sock_connect=connect_s, sock_read=read_timeout_s)


class _Content(Payload):
    """The body of a request. It records in `progress` how far it was sent; sending fails after `send_timeout_s`.

    It awaits `permit` again: while the hub connected, another member of the fleet may have taken the server.
    """

    def __init__(self, content: bytes, progress: SendProgress, send_timeout_s: float, permit: Permit | None) -> None:
        super().__init__(content, content_type="application/json")
        self._content = content
        self._size = len(content)
        self._progress = progress
        self._send_timeout_s = send_timeout_s
        self._permit = permit

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the content as text."""
        return self._content.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the content, once that is permitted, and note the progress; called by aiohttp. Raises TimeoutError."""
        if self._permit is not None:
            await self._permit()
        self._progress.sending_started = True
        await run_with_limit(self._write(writer), self._send_timeout_s)
        self._progress.handed_over = True

    async def _write(self, writer: AbstractStreamWriter) -> None:
        """Send the content in parts of WRITE_BYTES, and wait until the connection has taken them."""
        view = memoryview(self._content)
        for start in range(0, len(view), WRITE_BYTES):
            await writer.write(view[start : start + WRITE_BYTES])
        await writer.drain()

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Send the content once that is permitted; called by aiohttp, always with the length of the whole content."""
        await self.write(writer)


def _check_header(name: str, value: str) -> str:
    """Return the value of a configured header, if it may be sent. Raises UpstreamError (CONFIG_INVALID)."""
    if not _TOKEN.fullmatch(name):
        raise faults.error("CONFIG_INVALID", f"headers: {name!r} is no name of a header")
    if name.lower() in FRAMING:
        raise faults.error("CONFIG_INVALID", f"headers: {name} is set by the hub itself")
    if _CONTROL.search(value):
        raise faults.error("CONFIG_INVALID", f"headers: the value of {name} has a line break or another control")
    return value


class Proxies:
    """The proxies that the environment names."""

    def __init__(self, proxies_by_scheme: Mapping[str, str]) -> None:
        self._proxies_by_scheme = proxies_by_scheme

    def proxy_for(self, url: URL) -> tuple[URL | None, dict[str, str] | None]:
        """Return the proxy for a URL, and headers for the proxy alone; None without them.

        Raises UpstreamError (CONFIG_INVALID).
        """
        named_proxy = self._proxies_by_scheme.get(url.scheme) or self._proxies_by_scheme.get("all")
        if not named_proxy or proxy_bypass(f"{url.host}:{url.port}"):
            return None, None
        try:
            proxy = URL(named_proxy if "://" in named_proxy else f"http://{named_proxy}")
        except ValueError:
            raise faults.error("CONFIG_INVALID", "the proxy of the environment is no URL") from None
        if proxy.scheme not in ("http", "https"):
            raise faults.error("CONFIG_INVALID", f"the proxy of the environment is {proxy.scheme}, and not http")
        if proxy.user is None:
            return proxy, None
        return proxy.with_user(None), {
            "Proxy-Authorization": aiohttp.encode_basic_auth(proxy.user, proxy.password or "")
        }


def redirect_target(request: HttpRequest, response: HttpResponse) -> URL | None:
    """Return the target URL of a redirect that may be followed; None for any other response.

    It may be followed if it keeps the method, stays within the origin or only adds TLS, and names no user or password.
    """
    if not is_redirect(response) or not (request.method == "GET" or response.status in KEEPS_METHOD):
        return None
    source = request.url
    target = join_url(source, response.headers["location"])
    if target is None or not _stays_within_origin(source, target):
        return None
    return None if target.raw_authority.rpartition("@")[0] else target


def is_redirect(response: HttpResponse) -> bool:
    """Return whether a response says that the resource is elsewhere."""
    return response.status in REDIRECTS and "location" in response.headers


def describe_redirect(url: URL, response: HttpResponse) -> str:
    """Return a sentence about a redirect of `url` that is not followed.

    The sentence names only the scheme and host of the target, as the rest may be a secret.
    """
    target = join_url(url, response.headers["location"])
    where = f"to {target.origin()}" if target is not None else "to nothing that can be asked"
    return f"HTTP {response.status}, a redirect {where}, which is not followed; if that is right, set it as its url"


def join_url(base: URL, reference: str) -> URL | None:
    """Resolve a reference against a base URL; None if the result is not http or https, or has no host."""
    try:
        target = URL(urljoin(str(base), reference)).with_fragment(None)
    except ValueError:
        return None
    return target if target.scheme in ("http", "https") and target.raw_host else None


def is_same_origin(first: URL, second: URL) -> bool:
    """Return whether two URLs have the same scheme, host and port; a port that is not written is the default one."""
    return (first.scheme, first.raw_host, first.port) == (second.scheme, second.raw_host, second.port)


def _stays_within_origin(source: URL, target: URL) -> bool:
    """Return whether a URL has the same origin, or is the same host over TLS, with the default ports."""
    if is_same_origin(source, target):
        return True
    adds_tls = (
        (source.scheme, target.scheme) == ("http", "https") and source.is_default_port() and target.is_default_port()
    )
    return adds_tls and source.host == target.host


_UNREACHED_CODES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (aiohttp.ConnectionTimeoutError, "CONNECTION_TIMEOUT"),
    (aiohttp.ClientConnectorDNSError, "HOST_NOT_FOUND"),
    (aiohttp.ClientSSLError, "TLS_FAILED"),
    (aiohttp.ClientConnectorError, "CONNECTION_REFUSED"),
    (aiohttp.ClientHttpProxyError, "CONNECTION_REFUSED"),
    (aiohttp.InvalidURL, "CONFIG_INVALID"),
    (aiohttp.NonHttpUrlClientError, "CONFIG_INVALID"),
)
"""Exceptions of requests that reached no server, each with the code of its fault."""


def _failure_from(exc: Exception) -> HttpFailure:
    """Return the HttpFailure for an exception of aiohttp."""
    text = _describe_failure(exc)
    for kind, code in _UNREACHED_CODES:
        if isinstance(exc, kind):
            return HttpFailure(faults.fault(code, text, error=text), may_have_arrived=False)
    timed_out = isinstance(exc, TimeoutError)
    return HttpFailure(faults.fault("CONNECTION_LOST", text, error=text), may_have_arrived=True, timed_out=timed_out)


def _describe_failure(exc: Exception) -> str:
    """Return what an exception of aiohttp says, without the URL and what the server sent: either may be a secret."""
    match exc:
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answered HTTP {exc.status}"
        case aiohttp.ClientResponseError():
            return "what came is no HTTP response, or its head is too long"
        case aiohttp.ClientPayloadError():
            return "the body of the response broke off"
        case aiohttp.ServerDisconnectedError():
            return "the server closed the connection before its response"
        case aiohttp.ConnectionTimeoutError():
            return "nobody answered in time"
        case TimeoutError():
            return "it took too long to say or to take anything"
        case aiohttp.ClientConnectorCertificateError():
            return str(exc.certificate_error)
        case aiohttp.ClientConnectorError():
            return str(exc.os_error)
        case OSError():
            return os.strerror(exc.errno) if exc.errno else "the connection broke"
        case _:
            return str(exc.__cause__ or "") or type(exc).__name__
