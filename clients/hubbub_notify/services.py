"""Services that carry notifications, by Apprise. Their urls hold secrets: none is ever shown whole."""

import asyncio
import hashlib
import logging
import re
import threading
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import anyio
import apprise

from hubbub_notify.rules import NoticeRuleProblem
from hubbub_notify.target import SendOutcome
from hubbub_notify.text import Notice

LIMIT_S = 60.0
"""Time limit of one attempt, seconds. After that its outcome is unknown."""

HOST_SCHEMES = frozenset(("json", "jsons", "form", "forms", "xml", "xmls", "mailto", "mailtos"))
"""Schemes whose url has a host where others have a secret."""

WEBHOOKS = {"http": "json", "https": "jsons"}
"""The schemes of Apprise for an http or https address to post to; suggested to people who give the address itself."""

HEADER_SCHEMES = frozenset(("json", "jsons", "form", "forms", "xml", "xmls"))
"""Schemes that take headers: the receiver gets the notification's id, by which it can know one that comes again."""

ID_HEADER = "Idempotency-Key"

MAX_HARMLESS_CHARS = 3
"""A word of a url that is not longer is no secret."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service of Apprise."""

    url: str = field(repr=False)
    key: str
    name: str

    async def send(self, notice: Notice) -> tuple[SendOutcome, str]:
        """Send a notice once, in a thread of its own; return the outcome and its reason, after LIMIT_S at most."""
        attempt, ended, loop = _Attempt(), anyio.Event(), asyncio.get_running_loop()

        def send_in_thread() -> None:
            """Send the notice, then notify the loop that the attempt has ended."""
            self._send_blocking(notice, attempt)
            with suppress(RuntimeError):  # the program has ended meanwhile
                loop.call_soon_threadsafe(ended.set)

        # Not a thread of a pool: one that hangs would hold up all others, and the end of the program.
        threading.Thread(target=send_in_thread, name="notification", daemon=True).start()
        with anyio.move_on_after(LIMIT_S):
            await ended.wait()
        return attempt.outcome, attempt.why

    def _send_blocking(self, notice: Notice, attempt: "_Attempt") -> None:
        """Send a notice by Apprise, and write the outcome into `attempt`."""
        with _capture_log() as messages:
            try:
                # A fresh object of Apprise: one that has sent before may sleep, to keep to its own rate.
                service = _instantiate(self.url)
                headers: Any = getattr(service, "headers", None)
                if urlsplit(self.url).scheme.lower() in HEADER_SCHEMES and isinstance(headers, dict):
                    headers[ID_HEADER] = notice.id
                is_sent = service.notify(
                    title=notice.title,
                    body=notice.body,
                    notify_type=apprise.NotifyType.INFO,
                    body_format=apprise.NotifyFormat.TEXT,
                )
                if is_sent:
                    attempt.outcome, attempt.why = "sent", ""
                else:
                    why = redact_url(self.url, messages[-1] if messages else "it refused")
                    attempt.outcome, attempt.why = "failed", why
            except Exception as error:  # noqa: BLE001 - a service of Apprise may raise anything
                attempt.outcome, attempt.why = "failed", type(error).__name__


@dataclass(slots=True)
class _Attempt:
    """The outcome of an attempt, written in one thread and read in another; unknown until it is written."""

    outcome: SendOutcome = "unknown"
    why: str = f"no answer within {LIMIT_S:g} s"


def parse_service(url: str, number: int, where: str) -> Service:
    """Return the service at a url, the `number`th in `where`. Raises NoticeRuleProblem, whose text has no url."""
    scheme, colon, _ = url.partition("://")
    scheme = scheme.strip().lower()
    url_forms = _list_url_forms()
    this_url = f"{where}: the {format_ordinal(number)} url"
    if not colon or not re.fullmatch(r"[a-z0-9-]{1,30}", scheme):
        raise NoticeRuleProblem(f"{this_url} does not begin with a service, such as mailto://")
    if url_forms.get(scheme) == "":  # Apprise knows the scheme, but it cannot be used on this machine
        raise NoticeRuleProblem(
            f"{this_url} cannot be used here: {scheme}:// needs a package or a system that this machine does not have"
        )
    if scheme not in url_forms:
        similar = [WEBHOOKS[scheme]] if scheme in WEBHOOKS else get_close_matches(scheme, url_forms, n=1)
        advice = f"did you mean {similar[0]}://?" if similar else "docs/notify.md says where all services are listed"
        raise NoticeRuleProblem(f"{this_url} names no service: {scheme}://...; {advice}")
    with _capture_log():
        is_usable = _instantiate(url) is not None
    if not is_usable:
        raise NoticeRuleProblem(
            f"{this_url} cannot be used: something in it is missing or wrong; it looks like {url_forms[scheme]}"
        )
    key = hashlib.sha256(url.encode()).hexdigest()[:16]
    return Service(url, key, _make_service_name(url, scheme, number))


def parse_services(urls: Sequence[str], where: str) -> list[Service]:
    """Return the services at these urls, each once. Raises NoticeRuleProblem."""
    services = [parse_service(url, number, where) for number, url in enumerate(urls, 1)]
    return list({service.key: service for service in services}.values())


def redact_url(url: str, text: str) -> str:
    """Return a text in which each word of a url is replaced by `…`, since any part of the url may be a secret.

    The scheme stays, also the host if the scheme is of HOST_SCHEMES, and words of at most MAX_HARMLESS_CHARS.
    """
    public: set[str] = set()
    with suppress(ValueError):
        parts = urlsplit(url)
        public = {parts.scheme}
        if parts.scheme.lower() in HOST_SCHEMES:
            public |= {parts.hostname or "", *(parts.hostname or "").split(".")}
    words = {word for form in (url, unquote(url)) for word in re.split(r"[^\w.~-]+", form)}
    words |= {part for word in words for part in word.split(".")}
    for word in sorted(words - public, key=len, reverse=True):
        if len(word) > MAX_HARMLESS_CHARS:
            text = text.replace(word, "…")
    return text


def format_ordinal(number: int) -> str:
    """Return a number as 1st, 2nd, 3rd, 4th ..."""
    is_teen = 10 < number % 100 < 14
    suffix = "th" if is_teen else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _make_service_name(url: str, scheme: str, number: int) -> str:
    """Return a name for people: the scheme with the host, or with the number of the url if its host may be a secret."""
    host = ""
    if scheme in HOST_SCHEMES:
        with suppress(ValueError):
            parts = urlsplit(url)
            # A /, ? or # in a password ends the host for urlsplit: a part of the password would count as the host.
            after_host = parts.path + parts.fragment + (parts.query if ":" in parts.netloc else "")
            has_odd_password = "@" not in parts.netloc and "@" in after_host
            if not has_odd_password:
                host = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    return f"{scheme}://{host}" if host else f"{scheme}:// ({format_ordinal(number)} url)"


def _instantiate(url: str) -> Any:
    """Return the service of Apprise at a url; None if it cannot be used."""
    return cast("Any", apprise.Apprise).instantiate(url, suppress_exceptions=True)


@cache
def _list_url_forms() -> dict[str, str]:
    """Return, for each scheme of Apprise, the form of its urls.

    The form is empty if the scheme needs a package or a system that this machine does not have.
    """
    with warnings.catch_warnings():
        # Apprise imports all its services here, and some of them import modules that Python has deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        details: Any = apprise.Apprise().details(show_disabled=True)
    forms: dict[str, str] = {}
    for service in details["schemas"]:
        form = str(next(iter(service["details"]["templates"]), "{schema}://...")) if service["enabled"] else ""
        for scheme in (*(service["protocols"] or ()), *(service["secure_protocols"] or ())):
            forms[scheme] = form.replace("{schema}", scheme)
    return forms


@contextmanager
def _capture_log() -> Generator[list[str]]:
    """Yield a list that gets the messages that Apprise logs in this thread until the block ends, in place of stderr."""
    messages = _CAPTURED[threading.get_ident()] = list[str]()
    try:
        yield messages
    finally:
        del _CAPTURED[threading.get_ident()]


class _LogCapture(logging.Handler):
    """Adds each message of Apprise to the list of the thread that logs it (`_capture_log`); drops it without a list."""

    def emit(self, record: logging.LogRecord) -> None:
        """Add the message to the list of the current thread, if that thread captures."""
        messages = _CAPTURED.get(threading.get_ident())
        if messages is not None:
            messages.append(record.getMessage().strip())


_CAPTURED: dict[int, list[str]] = {}
_LOG = logging.getLogger("apprise")
_LOG.handlers = [_LogCapture(logging.WARNING)]
_LOG.propagate = False
# Requests in a debug log would have whole addresses.
logging.getLogger("urllib3").addHandler(logging.NullHandler())
