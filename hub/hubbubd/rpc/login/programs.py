"""The programs that log in: registered ones, whose id is a statement of the hub's own, and those with a document.

Own code instead of authlib's server side or the SDK's `mcp.server.auth`. Authlib's is synchronous, and bound to Flask
or Django. The SDK's handlers read the system's clock, keep secrets in plain, answer people with JSON, and know neither
free loopback ports, nor documents, nor `iss`, nor a refresh token's reuse; to import them takes half a second. What is
left is to read a dozen parameters: `core/logins`, held by tables of tests.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

from hubbubd.core.logins import clients, statements
from hubbubd.core.logins.clients import LoginClient
from hubbubd.core.logins.refusals import LoginRefusal

CLIENT_ID_PREFIX: Final = "hbc_"
"""The start of the id of a registered program."""

_ID_PURPOSE: Final = "registration"
_SECRET_PURPOSE: Final = "client secret"  # noqa: S105 - a purpose
"""The purposes of signatures by the hub's key: ids of registered programs, and their secrets."""


class Programs:
    """Finds programs by their id, and registers new ones."""

    def __init__(self, load_key: Callable[[], Awaitable[bytes]], fetch: Callable[[str], Awaitable[object]]) -> None:
        """`load_key` returns the key that signs ids; `fetch` returns the document at a URL, or raises LoginRefusal."""
        self._load_key = load_key
        self._fetch_document = fetch

    async def register(self, members: object, now: float) -> dict[str, Any]:
        """Return the response to a registration; `now` is in seconds since the epoch. Raises LoginRefusal, Unavailable.

        Nothing is stored: the id itself is a signed statement of what the program is.
        """
        client, key = clients.parse_registration(members), await self._load_key()
        statement: dict[str, Any] = {
            # Name, redirect URIs, and how the program authenticates.
            "n": client.name,
            "u": client.redirect_uris,
            "m": client.method,
            "x": secrets.token_urlsafe(9),  # no two programs have one id
        }
        client_id = f"{CLIENT_ID_PREFIX}{statements.sign(key, _ID_PURPOSE, statement)}"
        response: dict[str, Any] = {
            "client_id": client_id,
            "client_id_issued_at": int(now),
            "client_name": client.name,
            "redirect_uris": client.redirect_uris,
            "token_endpoint_auth_method": client.method,
            "grant_types": clients.GRANTS,
            "response_types": ["code"],
        }
        if client.method != "none":
            response |= {"client_secret": _derive_secret(key, client_id), "client_secret_expires_at": 0}
        return response

    async def find(self, client_id: str) -> LoginClient:
        """Return the program with this id. Fetches its document, if it has one. Raises LoginRefusal, Unavailable."""
        if clients.is_document_address(client_id):
            url = clients.check_document_address(client_id)
            return clients.parse_document(url, await self._fetch_document(url))
        return await self._find_registered(client_id)

    async def authenticate(self, client_id: str, secret: str | None) -> None:
        """Check the secret of a program, if it has one. Raises LoginRefusal, Unavailable.

        A program with a document has no secret, so the document is not fetched here: the code or token in the request
        is bound to the program's id.
        """
        if clients.is_document_address(client_id):
            clients.check_document_address(client_id)
            return
        client = await self._find_registered(client_id)
        if client.method != "none" and not _is_secret_of_program(await self._load_key(), client_id, secret):
            raise _unknown_program_error("the secret of this program is missing, or wrong")

    async def _find_registered(self, client_id: str) -> LoginClient:
        """Return the registered program with this id. Raises LoginRefusal, Unavailable."""
        statement = None
        if client_id.startswith(CLIENT_ID_PREFIX) and len(client_id) <= clients.MAX_CLIENT_ID:
            statement = statements.read(await self._load_key(), _ID_PURPOSE, client_id.removeprefix(CLIENT_ID_PREFIX))
        if statement is None:
            raise _unknown_program_error("this hub does not know the program: it has to register again")
        return LoginClient(
            id=client_id, name=statement["n"], redirect_uris=tuple(statement["u"]), method=statement["m"]
        )


def _derive_secret(key: bytes, client_id: str) -> str:
    """Return the secret of a registered program, derived from its id."""
    return f"hbcs_{statements.mac(key, _SECRET_PURPOSE, client_id.encode()).hex()}"


def _is_secret_of_program(key: bytes, client_id: str, secret: str | None) -> bool:
    """Return whether a text is the secret of a registered program."""
    return secret is not None and secrets.compare_digest(_derive_secret(key, client_id).encode(), secret.encode())


def _unknown_program_error(why: str) -> LoginRefusal:
    return LoginRefusal("invalid_client", why, status=401)
