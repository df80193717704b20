"""Which values of a configuration are secret: decided by the name of a value, and by its form.

a secret name ──> secret, unless the value is a word of settings ("disabled"), a path or an open address
a plain name, or a value in the form of no secret ──> not secret: it occurs in ordinary text
anything else ──> secret
"""

import re
from ipaddress import ip_address
from typing import Final
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit

from hubbubd.redaction import MAX_WORDS

_SECRET_NAME: Final = re.compile(
    r"auth|bearer|cookie|cred|key|pass|phrase|pin|pwd|salt|secret|session|sign|token"
    r"|(?<![a-z])(?:dsn|jwt|otp|pat|pats|pw|psk)(?![a-z])",
    re.IGNORECASE,
)
"""Names of variables, headers and parameters whose values are secret, though they may be plain words."""

_PLAIN_NAME: Final = re.compile(
    r"(?:.*[_-])?(?:host|hostname|hosts|port|lang|language|locale|timezone|tz)|no_proxy|lc_.*|path|home|user|logname|term"
    r"|colorterm|shell|tmpdir|temp|tmp|log_level|node_env|pythonpath|xdg_.*",
    re.IGNORECASE,
)
"""Names of variables for places and formats, whose values are not secret."""

_PLAIN_WORDS: Final = frozenset(
    {
        *("anonymous", "automatic", "default", "development", "disabled", "external", "interactive", "internal"),
        *("localhost", "optional", "password", "production", "required", "undefined", "username"),
    }
)
"""Words that are no secret under any name."""

_WORDS: Final = re.compile(r"[A-Za-z]+(?:[ ._/-][A-Za-z]+)*")
_NUMBER: Final = re.compile(r"[+-]?\d{1,20}(?:[.,]\d{1,20})?")
_PATH: Final = re.compile(r"(?:/|\.{1,2}[/\\]|~[/\\]|[A-Za-z]:[/\\])")
_PORT: Final = re.compile(r":\d{1,5}$")
_RANDOM: Final = re.compile(r"(?=.*\d)[^.]{16,}|(?=.*[a-z])(?=.*[A-Z])[A-Za-z]{20,}")
"""A random part of a url, which may be a secret."""


def list_spellings(name: str, value: str) -> set[str]:
    """Return the spellings of a secret value to redact: the value and its words, each also URL-encoded and decoded.

    Empty if the value is no secret.
    """
    if not is_secret(name, value):
        return set()
    plain = {value, *(word for word in value.split(maxsplit=MAX_WORDS)[:MAX_WORDS] if is_secret(name, word))}
    plain |= {decode(each) for each in plain for decode in (unquote, unquote_plus)}
    return (
        plain | {quote(each, safe=safe) for each in plain for safe in ("", "/")} | {quote_plus(each) for each in plain}
    )


def is_secret(name: str, value: str) -> bool:
    """Return whether the value of a variable, a header or a parameter is to be redacted wherever it occurs."""
    if value.startswith("/") or value.lower() in _PLAIN_WORDS:
        return False
    if _SECRET_NAME.search(name) is not None and _PLAIN_NAME.fullmatch(name) is None:
        return not (_is_loopback(value) or _is_open_url(value))
    if _PLAIN_NAME.fullmatch(name) is not None:
        return "@" in value  # a user, perhaps with a password, stands before it
    return not all(map(_is_plain, value.split(",")))


def _is_plain(value: str) -> bool:
    """Return whether a value has the form of no secret: words, a number, a path, a loopback or an open address."""
    value = value.strip()
    if any(form.fullmatch(value) for form in (_WORDS, _NUMBER)) or _PATH.match(value):
        return True
    return _is_loopback(value) or _is_open_url(value)


def _is_loopback(value: str) -> bool:
    """Return whether a value is a loopback or unspecified address, or `localhost`, with or without a port."""
    host = value if value.count(":") > 1 and not value.startswith("[") else _PORT.sub("", value)
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _is_open_url(value: str) -> bool:
    """Return whether a value is a URL without a user, a query, a fragment, and random parts in its path."""
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    if not parts.scheme or not parts.netloc or "@" in parts.netloc or parts.query or parts.fragment:
        return False
    return not any(_RANDOM.fullmatch(part) for part in parts.path.split("/"))
