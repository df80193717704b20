"""The metadata that hosts read first: which server issues credentials for the endpoint (RFC 9728, RFC 8414).

Every hub with an endpoint for hosts imports this when it starts, so what only a log-in needs is imported in functions.
"""

from typing import Any, Final

from hubbubd import payload

RESOURCE: Final = "/.well-known/oauth-protected-resource"
"""RFC 9728, section 3.1; the endpoint's path follows."""

SERVERS: Final = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
"""Where hosts look for the authorization server (RFC 8414, sections 3 and 5); some append the endpoint's path."""

AUTHORIZE: Final = "/oauth/authorize"
TOKEN: Final = "/oauth/token"  # noqa: S105 - a path
REGISTER: Final = "/oauth/register"
REVOKE: Final = "/oauth/revoke"
ENTER: Final = "/oauth/enter"
"""The page on which people show who they are."""

PAGES: Final = frozenset({AUTHORIZE, ENTER})
"""Paths that browsers open. Their forms are accepted only from the hub's own origin."""


def is_login_path(path: str) -> bool:
    """Return whether a path belongs to the log-in."""
    return path.startswith("/oauth/") or is_server_metadata_path(path)


def is_server_metadata_path(path: str) -> bool:
    """Return whether a path is one at which hosts look for an authorization server."""
    return any(f"{path}/".startswith(f"{each}/") for each in SERVERS)


def resource_metadata(resource: str, server: str, *, is_hub: bool) -> bytes:
    """Return the metadata of an endpoint for hosts as JSON; `server` issues its credentials, and is the hub or not."""
    metadata: dict[str, Any] = {
        "resource": resource,
        "resource_name": "Hubbub",
        "bearer_methods_supported": ["header"],
        "authorization_servers": [server],
    }
    if is_hub:
        from hubbubd.core.logins.authorizations import SCOPE

        metadata["scopes_supported"] = [SCOPE]
    return payload.dumps(metadata)


def server_metadata(base: str, *, has_documents: bool) -> bytes:
    """Return the metadata of the hub as an authorization server; `base` is its address without a path.

    `has_documents` says that a program may have a document instead of registering.
    """
    from hubbubd.core.logins.authorizations import SCOPE
    from hubbubd.core.logins.clients import GRANTS, METHODS

    metadata: dict[str, Any] = {
        "issuer": base,
        "authorization_endpoint": f"{base}{AUTHORIZE}",
        "token_endpoint": f"{base}{TOKEN}",
        "registration_endpoint": f"{base}{REGISTER}",
        "revocation_endpoint": f"{base}{REVOKE}",
        "scopes_supported": [SCOPE],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": GRANTS,
        "token_endpoint_auth_methods_supported": METHODS,
        "revocation_endpoint_auth_methods_supported": METHODS,
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
    }
    return payload.dumps(metadata | ({"client_id_metadata_document_supported": True} if has_documents else {}))
