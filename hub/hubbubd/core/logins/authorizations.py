"""What a host asks for when it sends a person's browser to the hub (RFC 6749, 4.1.1; RFC 7636; RFC 8707; RFC 9207).

Whether client and redirect URI are good is decided first. Only then may the browser be sent back, with an error, too.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from hubbubd.config.sections.network import is_loopback
from hubbubd.core.hosts import endpoint_paths
from hubbubd.core.hosts.endpoint_paths import EndpointName
from hubbubd.core.logins.clients import LoginClient, matches_redirect
from hubbubd.core.logins.refusals import LoginRefusal, invalid_request

SCOPE: Final = "mcp"
"""The only scope: to use the endpoint. Others that a host asks for are not given."""

MAX_QUERY: Final = 6000
"""Bytes of a request to log in."""

MAX_STATE: Final = 2000
"""Characters of what a host wants back with the answer."""

MAX_RESOURCE: Final = 2000

_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
"""A SHA-256 in base64url (RFC 7636, section 4.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationRequest:
    """A request to log in, checked."""

    client_id: str
    client_name: str
    redirect_uri: str
    redirect_named: bool
    """Whether the request named the redirect URI: then the exchange of the code has to name it, too."""
    challenge: str
    state: str | None
    endpoint: EndpointName


def read_parameters(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return parameters by name; empty ones count as missing. Raises LoginRefusal for one that is there twice."""
    parameters: dict[str, str] = {}
    for name, value in pairs:
        if name in parameters:
            raise invalid_request(f"the parameter {name[:40]!r} is there twice")
        if value:
            parameters[name] = value
    return parameters


def choose_redirect_uri(client: LoginClient, params: Mapping[str, str]) -> str:
    """Return where the browser is to be sent with the answer.

    A program that has registered only one URI may leave out the parameter `redirect_uri`. Raises LoginRefusal for a URI
    that the program has not registered: then the browser may be sent nowhere.
    """
    requested_uri = params.get("redirect_uri")
    if requested_uri is None:
        if len(client.redirect_uris) != 1:
            raise invalid_request("redirect_uri is missing, and the program has registered several")
        return client.redirect_uris[0]
    if not matches_redirect(client.redirect_uris, requested_uri):
        raise invalid_request("redirect_uri is none of those that the program has registered")
    return requested_uri


def parse_authorization(
    client: LoginClient, redirect_uri: str, params: Mapping[str, str], base: str
) -> AuthorizationRequest:
    """Return the request to log in of a client, checked; `redirect_uri` is known to be good.

    `base` is the hub's address, without a path. Raises LoginRefusal, with which the browser may be sent back.
    """
    if params.get("response_type") != "code":
        raise LoginRefusal("unsupported_response_type", "response_type must be code")
    if params.get("response_mode", "query") != "query":
        raise invalid_request("response_mode must be query, or missing")
    if "request" in params or "request_uri" in params:
        raise LoginRefusal("request_not_supported", "request objects are not taken: send the parameters themselves")
    if len(params.get("state", "")) > MAX_STATE:
        raise invalid_request(f"state may have {MAX_STATE} characters")
    challenge = params.get("code_challenge")
    if challenge is None:
        raise invalid_request("code_challenge is missing: PKCE with S256 is needed (RFC 7636)")
    if params.get("code_challenge_method") != "S256":
        raise invalid_request("code_challenge_method must be S256")
    if not _CHALLENGE.fullmatch(challenge):
        raise invalid_request("code_challenge must be a SHA-256 in base64url, 43 characters")
    if "none" in params.get("prompt", "").split():
        raise LoginRefusal("consent_required", "a person has to consent: send no prompt=none")
    return AuthorizationRequest(
        client_id=client.id,
        client_name=client.name,
        redirect_uri=redirect_uri,
        redirect_named="redirect_uri" in params,
        challenge=challenge,
        state=params.get("state"),
        endpoint=parse_resource(params.get("resource"), base),
    )


def parse_resource(resource: str | None, base: str) -> EndpointName:
    """Return the endpoint for which a token is requested (RFC 8707); without a resource, the endpoint at /mcp.

    `base` is the hub's address. If that is on loopback, any name of loopback with the same port is this hub as well.
    Raises LoginRefusal for a resource that is no endpoint of this hub.
    """
    if resource is None:
        return EndpointName(endpoint_paths.PROFILE, endpoint_paths.DEFAULT_PROFILE_NAME)
    parts = None
    if len(resource) <= MAX_RESOURCE and resource.isprintable():
        try:
            parts = urlsplit(resource)
            is_same_origin = _origin(resource) == _origin(base)
        except ValueError:
            parts = None
        else:
            if is_same_origin and parts.username is None and not parts.query and "#" not in resource:
                path = unquote(parts.path)
                endpoint = endpoint_paths.parse(endpoint_paths.PATH if path in ("", "/") else path)
                if endpoint is not None:
                    return endpoint
    raise LoginRefusal("invalid_target", f"resource must be an endpoint of this hub: {base}{endpoint_paths.PATH}")


def make_answer_url(redirect_uri: str, issuer: str, state: str | None, **members: str) -> str:
    """Return where the browser is sent with an answer: the redirect URI with `members` as parameters.

    Parameters are also `state`, which the host wants back, and `iss`, which names the hub as the issuer (RFC 9207).
    """
    params = {**members, **({} if state is None else {"state": state}), "iss": issuer}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in params.items())
    return f"{redirect_uri}{'&' if '?' in redirect_uri else '?'}{query}"


def _origin(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of a URL; one host for all names of loopback. Raises ValueError."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, "localhost" if is_loopback(host) else host, port
