"""What authorization servers send, in the form that the SDK reads.

The SDK validates each document as a whole, so one odd member costs the whole log-in. A deviation that does no harm is
repaired here, before it does:

| Document | Deviation | Read as |
|---|---|---|
| any | a member is null or an empty text | absent |
| challenge | `resource_metadata` is relative | relative to the refused request (RFC 3986, section 5) |
| metadata | `issuer` differs from the expected one by the slash of an empty path | the expected one (RFC 3986, 6.2.3) |
| metadata | a catalog of scopes | a hint whether `offline_access` is to be had, never what to ask for |
| registration | a secret, and no method to send it | `client_secret_basic` (RFC 7591, 2), else one that is advertised |
| registration | `client_id` is a number | its digits |
| registration, token | a number of seconds has a fraction, or is a text | whole seconds; left out if it is no number |
| token | form-encoded, as GitHub answers | the same members as JSON |
| token | an error with status 200, as GitHub answers | status 400 (RFC 6749, section 5.2) |
| token | `scope` is a list | its texts, separated by spaces |
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urljoin, urlsplit

import httpx2

from hubbubd import bounds
from hubbubd.payload import loads

FORM: Final = "application/x-www-form-urlencoded"

CLIENT_REFUSED: Final = frozenset({"invalid_client", "unauthorized_client"})
"""Errors of an authorization server that does not know the client, or no longer (RFC 6749, sections 4.1.2.1, 5.2)."""

OFFLINE: Final = "offline_access"

_MAX_FORM_FIELDS: Final = 200
"""Fields of a form-encoded reply; token replies have about five."""

_SECONDS: Final = ("expires_in", "client_id_issued_at", "client_secret_expires_at")

_RESOURCE_METADATA: Final = re.compile(r'(\bresource_metadata=)(?:"([^"]*)"|([^\s,"]+))')


class OAuthRequestKind(Enum):
    """What a request of a log-in asks for."""

    METADATA = auto()
    REGISTRATION = auto()
    TOKEN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowKnowledge:
    """What is known of a log-in when a reply to one of its requests is repaired."""

    issuer: str | None = None
    """The authorization server that the resource has named."""
    is_scope_known: bool = False
    """Whether the challenge, the resource or the configuration says which scopes to ask for."""
    methods: Sequence[str] | None = None
    """How clients may authenticate at the token endpoint, as its metadata say."""


def classify_request(request: httpx2.Request) -> OAuthRequestKind:
    """Return what a request of the SDK's log-in asks for."""
    if request.method != "POST":
        return OAuthRequestKind.METADATA
    form = request.headers.get("content-type", "").startswith(FORM)
    return OAuthRequestKind.TOKEN if form else OAuthRequestKind.REGISTRATION


def parse_document(content: bytes, kind: OAuthRequestKind) -> Any:
    """Return a reply's document. Raises ValueError for one that is neither JSON nor, for tokens, form-encoded."""
    try:
        return loads(content)
    except ValueError:
        if kind is not OAuthRequestKind.TOKEN:
            raise
    fields = dict(parse_qsl(content.decode(), max_num_fields=_MAX_FORM_FIELDS))
    if not {"access_token", "error"} & fields.keys():
        raise ValueError("neither JSON nor the form of a token")
    return fields


def repair_document(document: Any, kind: OAuthRequestKind, knowledge: FlowKnowledge) -> Any:
    """Return a document with the deviations of the table above repaired. What is no object is returned as it is."""
    if not isinstance(document, dict):
        return document
    raw_members = cast("dict[str, Any]", document)
    members = {name: value for name, value in raw_members.items() if value is not None and value != ""}
    for name in _SECONDS:
        seconds = _parse_seconds(members.pop(name, None))
        if seconds is not None:
            members[name] = seconds
    match kind:
        case OAuthRequestKind.METADATA:
            return _repair_metadata(members, knowledge)
        case OAuthRequestKind.REGISTRATION:
            return _repair_registration(members, knowledge)
        case OAuthRequestKind.TOKEN:
            return _join_scopes(members)


def effective_status(document: Any, kind: OAuthRequestKind, status: int) -> int:
    """Return a reply's HTTP status; 400 for a token reply that has an error instead of a token."""
    if kind is OAuthRequestKind.TOKEN and status < 300:
        is_refusal = read_error_code(document) and "access_token" not in document
        return 400 if is_refusal else status
    return status


def read_issuer(document: Any) -> str:
    """Return the issuer that a document names (RFC 8414, section 2), or an empty text."""
    issuer = cast("dict[str, Any]", document).get("issuer") if isinstance(document, dict) else None
    return issuer if isinstance(issuer, str) else ""


def read_error_code(document: Any) -> str:
    """Return the error code of a reply (RFC 6749, section 5.2), or an empty text."""
    code = cast("dict[str, Any]", document).get("error") if isinstance(document, dict) else None
    return code if isinstance(code, str) else ""


def read_error_description(document: Any) -> str:
    """Return what a reply says of its error for people (RFC 6749, section 5.2), or an empty text."""
    text = cast("dict[str, Any]", document).get("error_description") if isinstance(document, dict) else None
    return text if isinstance(text, str) else ""


def select_auth_method(methods: Sequence[str] | None) -> str:
    """Return the method by which a client with a secret authenticates, of those that a token endpoint advertises."""
    if methods is None or "client_secret_basic" in methods:
        return "client_secret_basic"  # RFC 7591, section 2: the default
    return "client_secret_post" if "client_secret_post" in methods else next(iter(methods), "client_secret_basic")


def is_same_issuer(issuer: str, other: str) -> bool:
    """Return whether two issuers are one: equal, but for the slash of an empty path (RFC 3986, section 6.2.3)."""
    if issuer == other:
        return True
    shorter, longer = sorted((issuer, other), key=len)
    parts = urlsplit(shorter)
    return longer == f"{shorter}/" == f"{parts.scheme}://{parts.netloc}/"


def complete_challenge(response: httpx2.Response, url: str, scope: str | None) -> httpx2.Response:
    """Return the refusal of a request to `url` with an absolute `resource_metadata`, asking for `scope` if that is set.

    A refusal for missing scopes (403) keeps the scopes that it names, as the former ones were not enough.
    """
    original = response.headers.get("www-authenticate", "")
    completed = _RESOURCE_METADATA.sub(
        lambda found: f'{found[1]}"{urljoin(url, found[2] or found[3] or "")}"', original
    )
    if scope is not None and response.status_code == 401:
        rest = f", {completed.removeprefix('Bearer ')}" if completed else ""
        completed = f'Bearer scope="{scope}"{rest}'
    if completed == original:
        return response
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() != "www-authenticate"]
    headers.append(("www-authenticate", completed))
    return httpx2.Response(response.status_code, headers=headers, content=response.content)


def _repair_metadata(members: dict[str, Any], knowledge: FlowKnowledge) -> dict[str, Any]:
    """Repair the metadata of a resource or an authorization server, by the table above."""
    issuer = members.get("issuer")
    if isinstance(issuer, str) and knowledge.issuer is not None and is_same_issuer(issuer, knowledge.issuer):
        members["issuer"] = knowledge.issuer
    if "authorization_servers" in members or "resource" in members:
        return members  # of a resource, whose scopes are those that it needs (RFC 9728, section 2)
    advertised_scopes = members.pop("scopes_supported", None)
    # The SDK would ask for all advertised scopes (`openid admin everything`), which no client needs.
    if knowledge.is_scope_known and isinstance(advertised_scopes, list) and OFFLINE in advertised_scopes:
        members["scopes_supported"] = [OFFLINE]
    return members


def _repair_registration(members: dict[str, Any], knowledge: FlowKnowledge) -> dict[str, Any]:
    """Repair the reply to a registration, by the table above."""
    if isinstance(members.get("client_id"), int):
        members["client_id"] = str(members["client_id"])
    if "client_secret" in members and "token_endpoint_auth_method" not in members:
        members["token_endpoint_auth_method"] = select_auth_method(knowledge.methods)
    return _join_scopes(members)


def _join_scopes(members: dict[str, Any]) -> dict[str, Any]:
    """Make `scope` one text, if it is a list."""
    scope = members.get("scope")
    if isinstance(scope, list):
        members["scope"] = " ".join(str(each) for each in cast("list[Any]", scope))
    return members


def _parse_seconds(value: Any) -> int | None:
    """Return a number of seconds, sent as a number or text, as a whole number; None if it is neither."""
    return bounds.clamp_whole(bounds.parse_real(value) if isinstance(value, str) else value)
