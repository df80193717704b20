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
from hubbub_notify.target import Said
from hubbub_notify.text import Notice

LIMIT_S = 60.0
"""Time limit of one attempt, seconds. After that nobody knows what became of it."""

HOSTS = frozenset(("json", "jsons", "form", "forms", "xml", "xmls", "mailto", "mailtos"))
"""Schemes whose url has a host where others have a secret."""

WEBHOOKS = {"http": "json", "https": "jsons"}
"""What an address of one's own is called here."""

NAMED = frozenset(("json", "jsons", "form", "forms", "xml", "xmls"))
"""Schemes that take headers: the receiver gets the notification's id, by which it can know one that comes again."""

ID_HEADER = "Idempotency-Key"

_SHORT = 3


@dataclass(frozen=True, slots=True)
class Service:
    """A service of Apprise."""

    url: str = field(repr=False)
    key: str
    name: str

    async def send(self, notice: Notice) -> tuple[Said, str]:
        """Try once, in a thread of its own, with a time limit."""
        said, ended, loop = _Outcome(), anyio.Event(), asyncio.get_running_loop()

        def work() -> None:
            self._send(notice, said)
            with suppress(RuntimeError):  # the program has ended meanwhile
                loop.call_soon_threadsafe(ended.set)

        # Not one of a pool: a thread that hangs would hold up all others, and the end of the program.
        threading.Thread(target=work, name="notification", daemon=True).start()
        with anyio.move_on_after(LIMIT_S):
            await ended.wait()
        return said.now()

    def _send(self, notice: Notice, said: "_Outcome") -> None:
        with _heard() as words:
            try:
                # A fresh one: one that has sent before may sleep to keep to its own rate.
                service = _made(self.url)
                if urlsplit(self.url).scheme.lower() in NAMED and isinstance(headers := _headers(service), dict):
                    headers[ID_HEADER] = notice.id
                good = bool(
                    service.notify(
                        title=notice.title,
                        body=notice.body,
                        notify_type=apprise.NotifyType.INFO,
                        body_format=apprise.NotifyFormat.TEXT,
                    )
                )
                said.put("sent" if good else "failed", self._without_secrets(words[-1] if words else "it refused"))
            except Exception as error:  # noqa: BLE001 - a service of Apprise may raise anything
                said.put("failed", type(error).__name__)

    def _without_secrets(self, text: str) -> str:
        return hidden(self.url, text)


class _Outcome:
    """What became of an attempt, told from one thread to another."""

    def __init__(self) -> None:
        self._said: tuple[Said, str] | None = None

    def put(self, said: Said, why: str) -> None:
        self._said = (said, "" if said == "sent" else why)

    def now(self) -> tuple[Said, str]:
        return self._said or ("unknown", f"no answer within {LIMIT_S:g} s")


def service(url: str, number: int, where: str) -> Service:
    """Return the service at a url, the `number`th in `where`. Raises NoticeRuleProblem, without the url in it."""
    scheme, colon, _ = url.partition("://")
    known = _schemes()
    scheme = scheme.strip().lower()
    if not colon or not re.fullmatch(r"[a-z0-9-]{1,30}", scheme):
        raise NoticeRuleProblem(f"{where}: the {ordinal(number)} url does not begin with a service, such as mailto://")
    if known.get(scheme) == "":
        raise NoticeRuleProblem(
            f"{where}: the {ordinal(number)} url cannot be used here: {scheme}:// needs a package or a system that this"
            " machine does not have"
        )
    if scheme not in known:
        near = [WEBHOOKS[scheme]] if scheme in WEBHOOKS else get_close_matches(scheme, known, n=1)
        advice = f"did you mean {near[0]}://?" if near else "docs/notify.md says where all services are listed"
        raise NoticeRuleProblem(f"{where}: the {ordinal(number)} url names no service: {scheme}://...; {advice}")
    with _heard():
        made = _made(url)
    if made is None:
        raise NoticeRuleProblem(
            f"{where}: the {ordinal(number)} url cannot be used: something in it is missing or wrong; it looks like"
            f" {known[scheme]}"
        )
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    return Service(url, digest, _name(url, scheme, number))


def services(urls: Sequence[str], where: str) -> list[Service]:
    """Return the services at these urls, each once. Raises NoticeRuleProblem."""
    found = [service(url, number, where) for number, url in enumerate(urls, 1)]
    return list({each.key: each for each in found}.values())


def hidden(url: str, text: str) -> str:
    """Return a text without any word of a url, but for its scheme, and its host where that is one."""
    keep: set[str] = set()
    with suppress(ValueError):
        parts = urlsplit(url)
        keep = {parts.scheme}
        if parts.scheme.lower() in HOSTS:
            keep |= {parts.hostname or "", *(parts.hostname or "").split(".")}
    words = {word for each in (url, unquote(url)) for word in re.split(r"[^\w.~-]+", each)}
    words |= {part for word in words for part in word.split(".")}
    for word in sorted(words - keep, key=len, reverse=True):
        if len(word) > _SHORT:
            text = text.replace(word, "…")
    return text


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th ..."""
    tens = 10 < number % 100 < 14
    return f"{number}{'th' if tens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _name(url: str, scheme: str, number: int) -> str:
    host = ""
    if scheme in HOSTS:
        with suppress(ValueError):
            parts = urlsplit(url)
            if "@" not in parts.netloc and "@" in parts.path + parts.fragment:  # a password has a / or #
                return f"{scheme}:// ({ordinal(number)} url)"
            port = f":{parts.port}" if parts.port else ""
            host = f"{parts.hostname or ''}{port}"
    return f"{scheme}://{host}" if host else f"{scheme}:// ({ordinal(number)} url)"


def _made(url: str) -> Any:
    make: Any = cast("Any", apprise.Apprise).instantiate
    return make(url, suppress_exceptions=True)


def _headers(made: Any) -> object:
    return getattr(made, "headers", None)


@cache
def _schemes() -> dict[str, str]:
    """Return all schemes, each with the form of its urls; it is empty where this machine has not what it takes."""
    with warnings.catch_warnings():
        # Apprise imports all its services here, some of them by modules that Python has given up.
        warnings.simplefilter("ignore", DeprecationWarning)
        details: Any = apprise.Apprise().details(show_disabled=True)
    found: dict[str, str] = {}
    for each in details["schemas"]:
        form = str(next(iter(each["details"]["templates"]), "{schema}://...")) if each["enabled"] else ""
        for name in (*(each["protocols"] or ()), *(each["secure_protocols"] or ())):
            found[name] = form.replace("{schema}", name)
    return found


@contextmanager
def _heard() -> Generator[list[str]]:
    """Collect what Apprise says in this thread, and keep it from the standard error stream."""
    words = _EARS[threading.get_ident()] = list[str]()
    try:
        yield words
    finally:
        del _EARS[threading.get_ident()]


class _Ears(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        words = _EARS.get(threading.get_ident())
        if words is not None:
            words.append(record.getMessage().strip())


_EARS: dict[int, list[str]] = {}
_LOG = logging.getLogger("apprise")
_LOG.handlers = [_Ears(logging.WARNING)]
_LOG.propagate = False
# Requests in a debug log would have whole addresses.
logging.getLogger("urllib3").addHandler(logging.NullHandler())
