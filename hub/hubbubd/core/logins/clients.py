"""Programs that ask for a log-in: what they say of themselves, and where the browser may be sent (RFC 7591, RFC 8252).

Nothing of it is verified. A program is known by where the browser is sent, and people are shown that.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import SplitResult, urlsplit

from hubbubd.config.sections.network import is_loopback
from hubbubd.core.logins.refusals import LoginRefusal

MAX_REDIRECTS: Final = 10
"""The most redirect URIs of a program; VS Code has six."""

MAX_REDIRECT: Final = 500
"""Characters of a redirect URI."""

MAX_REDIRECTS_TOGETHER: Final = 1500
"""Characters of all redirect URIs of a program: its id contains them."""

MAX_CLIENT_NAME: Final = 80
"""Characters of a program's name that are kept."""

MAX_CLIENT_ID: Final = 4096
"""Characters of a client id; the hub's own have 2,700 at most."""

METHODS: Final = ("none", "client_secret_basic", "client_secret_post")
"""How a program may authenticate at the token endpoint."""

GRANTS: Final = ("authorization_code", "refresh_token")

_URI: Final = re.compile(r"[!#-;=?-\[\]_a-z~]+")
"""The characters of a URI (RFC 3986, appendix A)."""

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{0,63}")
_UNSAFE: Final = frozenset(
    {
        *("about", "blob", "chrome", "data", "file", "filesystem", "intent", "javascript", "jar", "resource"),
        *("vbscript", "view-source", "ftp", "ftps", "ldap", "mailto", "sms", "smb", "ssh", "tel", "ws", "wss"),
        *("bitcoin", "ethereum", "geo", "im", "irc", "ircs", "magnet", "matrix", "mms", "news", "nntp", "openpgp4fpr"),
        *("sftp", "sip", "smsto", "urn", "webcal", "wtai", "xmpp", "search", "search-ms"),
    }
)
"""Schemes that browsers or systems open themselves, or that a website may take (HTML, registerProtocolHandler).

What is sent there reaches no program of its own on this machine. So it is with `web+...` and `ms-...`.
"""

_UNSAFE_BEGINNINGS: Final = ("web+", "ms-")

_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|[0-9a-f:.]+")
"""A host as it is: escaped characters would show people another one than browsers go to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginClient:
    """A program, as it describes itself."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    method: str = "none"
    document_host: str = ""
    """The host of the document that describes it, if its id is the address of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a program wants to be registered as."""

    name: str
    redirect_uris: tuple[str, ...]
    method: str


def parse_registration(members: object) -> Registration:
    """Return the registration that a program sends (RFC 7591, section 2), checked. Raises LoginRefusal."""
    if not isinstance(members, Mapping):
        raise LoginRefusal("invalid_client_metadata", "the body must be a JSON object")
    metadata = cast("Mapping[str, Any]", members)
    method: object = metadata.get("token_endpoint_auth_method") or "client_secret_basic"
    if method not in METHODS:
        raise LoginRefusal("invalid_client_metadata", f"token_endpoint_auth_method must be one of {', '.join(METHODS)}")
    _require_listed(metadata, "grant_types", "authorization_code")
    _require_listed(metadata, "response_types", "code")
    return Registration(
        name=clean_client_name(metadata.get("client_name")),
        redirect_uris=_parse_redirect_uris(metadata),
        method=str(method),
    )


def parse_document(url: str, members: object) -> LoginClient:
    """Return the program that a client id metadata document describes. Raises LoginRefusal."""
    if not isinstance(members, Mapping):
        raise LoginRefusal("invalid_client", "the document at the client id is no JSON object")
    metadata = cast("Mapping[str, Any]", members)
    if metadata.get("client_id") != url:
        raise LoginRefusal("invalid_client", "the document names another client_id than its own address")
    if "client_secret" in metadata or (metadata.get("token_endpoint_auth_method") or "none") != "none":
        raise LoginRefusal("invalid_client", "a program with such a document has no secret: its method must be none")
    _require_listed(metadata, "grant_types", "authorization_code")
    return LoginClient(
        id=url,
        name=clean_client_name(metadata.get("client_name")),
        redirect_uris=_parse_redirect_uris(metadata),
        document_host=urlsplit(url).netloc,
    )


def is_document_address(client_id: str) -> bool:
    """Return whether a client id is the address of a document that describes the program."""
    return client_id[:8].lower() == "https://"


def check_document_address(client_id: str) -> str:
    """Return a client id that is the address of a program's document. Raises LoginRefusal if it is not a valid one."""
    parts = _split_uri(client_id) if len(client_id) <= MAX_REDIRECT else None
    if (
        parts is None
        or parts.scheme != "https"
        or not parts.hostname
        or parts.username is not None
        or parts.fragment
        or "#" in client_id
        or parts.path in ("", "/")
        or {".", ".."} & {*parts.path.split("/")}
    ):
        requirements = "an https address with a path, without user, fragment, `.` or `..`"
        raise LoginRefusal("invalid_client", f"a client id that is the address of a document must be {requirements}")
    return client_id


def check_redirect_uri(uri: object) -> str:
    """Return a redirect URI to which browsers may be sent. Raises LoginRefusal.

    That is https, http on loopback (RFC 8252, 7.3), or a scheme of the program's own (7.1).
    """
    if not isinstance(uri, str) or not uri or len(uri) > MAX_REDIRECT:
        raise _bad_redirect_error(f"must be text of at most {MAX_REDIRECT} characters")
    parts = _split_uri(uri)
    if parts is None or "#" in uri:
        raise _bad_redirect_error("must be an absolute URI without a fragment")
    match parts.scheme:
        case "https" if _has_plain_host(parts):
            return uri
        case "http" if _has_plain_host(parts) and is_loopback(parts.hostname or ""):
            return uri
        case "http" | "https":
            raise _bad_redirect_error("must be https, or http on loopback, with a host and without a user")
        case scheme if scheme in _UNSAFE or scheme.startswith(_UNSAFE_BEGINNINGS) or not _SCHEME.fullmatch(scheme):
            raise _bad_redirect_error(f"must not have the scheme {scheme[:20]}")
        case _:
            return uri


def matches_redirect(registered: Sequence[str], requested_uri: str) -> bool:
    """Return whether the browser may be sent to a URI: whether it is registered, compared as text.

    On loopback the port is free, as a program learns its own when it starts (RFC 8252, 7.3).
    """
    if requested_uri in registered:
        return True
    uri_without_port = _without_port(requested_uri)
    return uri_without_port is not None and any(_without_port(uri) == uri_without_port for uri in registered)


def clean_client_name(text: object) -> str:
    """Return a program's name as it may be shown: printable, on one line, not too long; "" for what is no text."""
    words = text.split() if isinstance(text, str) else []
    clean = "".join(filter(str.isprintable, " ".join(words)))
    return clean if len(clean) <= MAX_CLIENT_NAME else f"{clean[: MAX_CLIENT_NAME - 1]}…"


def redirect_origin(uri: str) -> str:
    """Return the target that a page has to allow for a redirect URI: its origin, or its scheme if it has no host."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def redirect_host(uri: str) -> str:
    """Return where a redirect URI leads, as people are shown it: its host, or the program's own scheme."""
    parts = urlsplit(uri)
    return parts.hostname or "" if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def leads_to_this_machine(uri: str) -> bool:
    """Return whether a redirect URI leads to a program on the machine of the browser."""
    parts = urlsplit(uri)
    return parts.scheme not in ("http", "https") or is_loopback(parts.hostname or "")


def _parse_redirect_uris(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the redirect URIs that a program registers, checked. Raises LoginRefusal."""
    listed: object = metadata.get("redirect_uris")
    if not isinstance(listed, list) or not listed:
        raise _bad_redirect_error("must be a list with at least one URI")
    uris = cast("list[object]", listed)
    if len(uris) > MAX_REDIRECTS:
        raise _bad_redirect_error(f"must be {MAX_REDIRECTS} at most")
    checked = tuple(dict.fromkeys(map(check_redirect_uri, uris)))
    if sum(map(len, checked)) > MAX_REDIRECTS_TOGETHER:
        raise _bad_redirect_error(f"must have {MAX_REDIRECTS_TOGETHER} characters together at most")
    return checked


def _require_listed(metadata: Mapping[str, Any], member: str, required: str) -> None:
    """Raise LoginRefusal if a member is there and is not a list with the wanted value."""
    listed: object = metadata.get(member)
    if listed is not None and (not isinstance(listed, list) or required not in cast("list[object]", listed)):
        raise LoginRefusal("invalid_client_metadata", f"{member} must contain {required}")


def _has_plain_host(parts: SplitResult) -> bool:
    """Return whether a URI has a host without escaped characters, and no user."""
    return parts.username is None and _HOST.fullmatch(parts.hostname or "") is not None


def _split_uri(uri: str) -> SplitResult | None:
    """Return the parts of an absolute URI; None for any other text, and for characters that no URI has."""
    if _URI.fullmatch(uri) is None:
        return None
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    return parts if parts.scheme else None


def _without_port(uri: str) -> tuple[str, str, str] | None:
    """Return a loopback URI without its port, as (host, path, query); None for any other."""
    parts = _split_uri(uri)  # which takes no line breaks; `urlsplit` alone drops them
    if (
        parts is None
        or parts.scheme != "http"
        or not is_loopback(parts.hostname or "")
        or parts.username is not None
        or parts.fragment
    ):
        return None
    return parts.hostname or "", parts.path, parts.query


def _bad_redirect_error(problem: str) -> LoginRefusal:
    return LoginRefusal("invalid_redirect_uri", f"a redirect URI {problem}")
