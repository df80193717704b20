"""Who sits at the browser: the form for a code, and the cookie that remembers who typed it.

A form of these pages counts only if the browser says that it comes from the hub's own origin. Guesses of codes are
limited by address and over all; who has tried too often waits for a second or two, so nobody can lock a person out.
"""

import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import cookie_parser

from hubbub_http import MARK_AUTHENTICATED
from hubbubd.config.sections.network import is_loopback
from hubbubd.core.logins import visits
from hubbubd.core.logins.visits import CodeProblem, Visitor
from hubbubd.errors import ResourceExhausted, Unavailable
from hubbubd.rpc.login import metadata, pages
from hubbubd.rpc.login.pages import EnterView, ProblemView
from hubbubd.rpc.mcp.transport import HostHttpRequest, HttpRefusal
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.oversight import Attempt, CodeRefused, Rate

ACTION: Final = "EnterLoginCode"
"""The name in the audit log of the use of a code."""

CODES_PER_S: Final = 1.0
"""Codes per second that an address may try; ten times as many at once."""

ALL_CODES_PER_S: Final = 10.0
"""The same for all addresses together: 6,100 guesses in the ten minutes of a code, of 850 thousand million."""

MAX_NEXT_CHARS: Final = 6000
"""The most characters of the address to which the browser goes after a code."""

_NEXT_PATTERN: Final = re.compile(rf"{metadata.AUTHORIZE}\?[!-~]{{0,{MAX_NEXT_CHARS}}}")

_PROBLEMS: Final = {
    CodeProblem.UNKNOWN: "The hub knows no such code. Compare it letter by letter, or get a new one.",
    CodeProblem.USED: "This code was used already: each is good once. Get a new one.",
    CodeProblem.EXPIRED: "This code has expired: each is good for ten minutes. Get a new one.",
    CodeProblem.ENDED: "The access of the person who asked for this code has ended. Get a code of your own.",
}
_MALFORMED: Final = "This is no code. A code has eight letters and digits, without I, L, O, 0 and 1."

Headers = Sequence[tuple[bytes, bytes]]


class LoginPersons:
    """Finds out who sits at a browser. `secure` says that browsers speak TLS, to the hub or a proxy."""

    def __init__(self, hub: Hub, *, secure: bool) -> None:
        self._hub = hub
        self._is_secure = secure
        self._rate_by_network = Rate("codes", CODES_PER_S, hub.clock.steady, reason="TOO_MANY_ATTEMPTS")
        self._rate_of_all = Rate("codes", ALL_CODES_PER_S, hub.clock.steady, reason="TOO_MANY_ATTEMPTS")

    async def find(self, request: HostHttpRequest, statement: str | None = None) -> tuple[Visitor, str] | None:
        """Return who is at the browser, and the browser's cookie; None if the hub does not know. Raises Unavailable.

        `statement` is the signed question that a decision answers. A visit (the log-in of a browser) that this very
        decision has ended still counts. Lifts the limit for unauthenticated connections from a known person's one.
        """
        cookie = cookie_parser(request.headers.get("cookie", "")).get(self._cookie_name(request), "")
        visitor = await self._hub.visitors.find_visitor(cookie, statement)
        if visitor is None:
            return None
        _admit_connection(request)
        return visitor, cookie

    async def end_visit_if_insecure(self, cookie: str, statement: str) -> None:
        """End a person's visit (the log-in of the browser) after this decision, unless TLS protects the cookie.

        Raises Unavailable.
        """
        if not self._is_secure:
            await self._hub.visitors.end_by_decision(cookie, statement)

    async def serve(self, request: HostHttpRequest, base: str) -> None:
        """Serve the page for a code at `base`, the hub's own address as the browser has it."""
        match request.scope["method"]:
            case "GET" | "HEAD":
                query = _read_query(request)
                view = EnterView(
                    next=_validate_next(query.get("next", "")), code=visits.read_code(query.get("code", "")) or ""
                )
                await send_page(request, pages.enter_page(view))
            case "POST":
                await self._serve_form(request, base)
            case _:
                await send_page(request, pages.problem_page(pages.WRONG_FORM), 405, headers=[(b"allow", b"GET, POST")])

    async def _serve_form(self, request: HostHttpRequest, base: str) -> None:
        """Serve the form with a code: on success set the cookie, and send the person on to the log-in, if one waits."""
        fields = await read_own_form(request, base)
        if fields is None:
            return
        next_url, typed_code = _validate_next(fields.get("next", "")), fields.get("code", "")
        code = visits.read_code(typed_code)
        if code is None:
            await self._show_enter_page(request, next_url, typed_code, _MALFORMED)
            return
        try:
            for rate, holder in ((self._rate_by_network, _client_network(request)), (self._rate_of_all, "everywhere")):
                rate.charge(holder)
            cookie, visitor = await self._use_code(request, code)
        except ResourceExhausted as exc:
            wait_s = max(1, round(exc.retry_after_s or 1))
            too_often = (
                f"Too many codes were tried. Wait for {wait_s} s, then press Continue again: your code is still good."
            )
            await self._show_enter_page(request, next_url, code, too_often, 429, [(b"retry-after", b"%d" % wait_s)])
        except CodeRefused as refused:
            await self._show_enter_page(request, next_url, code, _PROBLEMS[refused.problem])
        except Unavailable:
            busy = "The hub cannot write to its store now. Wait a moment, then press Continue again."
            await self._show_enter_page(request, next_url, code, busy, 503)
        else:
            _admit_connection(request)
            name = self._cookie_name(request)
            limits = f"HttpOnly; SameSite=Lax; Path=/{'; Secure' if self._is_secure else ''}"
            headers = [(b"set-cookie", f"{name}={cookie}; {limits}".encode())]
            if next_url:
                await redirect(request, next_url, headers)
            else:
                await send_page(request, pages.problem_page(pages.entered_view(visitor.name)), headers=headers)

    async def _use_code(self, request: HostHttpRequest, code: str) -> tuple[str, Visitor]:
        """Use up a code, with an entry in the audit log; return the cookie and who is at the browser.

        Raises CodeRefused, Unavailable."""
        visitors, audit = self._hub.visitors, self._hub.audit
        owner = await visitors.find_owner(code)
        attempt = Attempt(
            principal=owner.name if owner else "",
            credential=owner.credential if owner else "",
            peer="loopback" if is_loopback(_client_address(request)) else "network",
            action=ACTION,
            target=owner.name if owner else "",
        )
        with audit.record_change(attempt):
            return await visitors.use_code(code, secure=self._is_secure)

    async def _show_enter_page(
        self, request: HostHttpRequest, next_url: str, code: str, problem: str, status: int = 400, headers: Headers = ()
    ) -> None:
        """Show the page for a code again, with the problem; `next_url` is where the browser goes after a good code."""
        view = EnterView(next=next_url, code=code[:40], problem=problem)
        await send_page(request, pages.enter_page(view), status, headers=headers)

    def _cookie_name(self, request: HostHttpRequest) -> str:
        """Return the cookie's name, with the port: cookies do not tell ports apart, and there may be another hub."""
        _, _, port = request.headers.get("host", "").rpartition(":")
        kind = "__Host-hubbub-login" if self._is_secure else "hubbub-login"
        return f"{kind}-{port}" if port.isdecimal() else kind


async def send_page(
    request: HostHttpRequest, body: bytes, status: int = 200, form_to: str = "", headers: Headers = ()
) -> None:
    """Answer with a page. Its form may also lead to `form_to`, an origin or a scheme."""
    all_headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"content-security-policy", pages.security_policy(form_to).encode()),
        *_PAGE_HEADERS,
        *headers,
    ]
    await request.begin(status, all_headers)
    if request.scope["method"] != "HEAD":
        await request.send({"type": "http.response.body", "body": body, "more_body": True})
    await request.end()


async def show_problem(request: HostHttpRequest, view: ProblemView, status: int = 400) -> None:
    """Answer with the page that says what went wrong, or well, and what to do next."""
    await send_page(request, pages.problem_page(view), status)


async def redirect(request: HostHttpRequest, location: str, headers: Headers = ()) -> None:
    """Send the browser on, by a GET."""
    all_headers = [(b"location", location.encode()), (b"content-length", b"0"), *_PAGE_HEADERS, *headers]
    await request.begin(303, all_headers)
    await request.end()


async def read_own_form(request: HostHttpRequest, base: str) -> dict[str, str] | None:
    """Return the fields of a form that comes from a page at `base`; None where it was refused, with a page."""
    if not _comes_from_own_page(request, base):
        await show_problem(request, pages.FOREIGN_FORM, 403)
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind != "application/x-www-form-urlencoded":
            raise ValueError("this is no form")
        return pages.read_form(await request.read_body(pages.MAX_FORM_BYTES))
    except ValueError:
        await show_problem(request, pages.WRONG_FORM)
    except HttpRefusal as exc:  # too long, or too slow
        await send_page(request, pages.problem_page(pages.WRONG_FORM), exc.status, headers=exc.headers)
    return None


_PAGE_HEADERS: Final[Headers] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not no-referrer: with that, browsers send `Origin: null` with a form.
    (b"referrer-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), payment=(), usb=()"),
)


def _comes_from_own_page(request: HostHttpRequest, base: str) -> bool:
    """Return whether a form comes from a page of this hub."""
    parts = urlsplit(base)
    # Behind a proxy, the hub may also be reached directly, under its own name.
    own_origins = {
        f"{parts.scheme}://{parts.netloc}",
        f"{request.scope.get('scheme', 'http')}://{request.headers.get('host')}",
    }
    site = request.headers.get("sec-fetch-site", "same-origin")
    return request.headers.get("origin") in own_origins and site == "same-origin"


def _read_query(request: HostHttpRequest) -> dict[str, str]:
    """Return the parameters of the request's query; empty if it cannot be read."""
    query: bytes = request.scope.get("query_string", b"")
    if len(query) > 4 * MAX_NEXT_CHARS:
        return {}
    try:
        return dict(parse_qsl(query.decode("latin-1"), max_num_fields=pages.MAX_FIELDS))
    except ValueError:
        return {}


def _validate_next(next_url: str) -> str:
    """Return where the browser goes next if that is a log-in at this hub, else an empty text."""
    return next_url if _NEXT_PATTERN.fullmatch(next_url) else ""


def _client_network(request: HostHttpRequest) -> str:
    """Return the key for the rate of guesses: the address, or with IPv6 the /64 network, which one person has."""
    address = _client_address(request)
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else address


def _client_address(request: HostHttpRequest) -> str:
    """Return the IP address that a request comes from; empty if it is not known."""
    client = request.scope.get("client")
    return client[0] if client else ""


def _admit_connection(request: HostHttpRequest) -> None:
    """Note that a connection is a known person's: the limit of unauthenticated connections no longer counts it."""
    admit: Callable[[], None] = request.scope.get(MARK_AUTHENTICATED, lambda: None)
    admit()
