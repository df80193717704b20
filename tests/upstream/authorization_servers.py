"""Authorization servers with the habits of those that people meet, each with a guarded server in front of it.

What they send has the form that their own documents and public reports of late 2026 show.
"""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from .guarded import Guarded


@dataclass
class Shaped(Guarded):
    """A server that says nothing of scopes in its refusals, and whose documents a test gives."""

    resource_members: dict[str, Any] = field(default_factory=dict)
    metadata_members: dict[str, Any] = field(default_factory=dict)
    """Members of its metadata; None takes one away."""
    registration_members: dict[str, Any] = field(default_factory=dict)
    resource_path: str = "/.well-known/oauth-protected-resource/mcp"
    """What a refusal names: a path is relative to the request."""
    iss: str | None = None
    """The issuer in redirects."""
    quiet: bool = False
    """Whether it calls a grant invalid where it is the client that is unknown."""
    looked_up: list[str] = field(default_factory=list)
    """The paths at which metadata of the resource were looked up."""
    visits: list[dict[str, str]] = field(default_factory=list)
    """The parameters of each visit of a browser."""
    _known: set[str] = field(default_factory=set)

    def forget(self) -> None:
        """Forget all clients and tokens, as a server does that has lost its database."""
        self._known.clear()
        self.valid.clear()

    def routes(self) -> list[Route]:
        return [*super().routes(), Route("/elsewhere/about-me", self.resource)]

    async def mcp(self, request: Request) -> Response:
        if request.headers.get("authorization", "").removeprefix("Bearer ") in self.valid:
            return await self.script.serve(request)
        self.refused += 1
        about = f'Bearer resource_metadata="{self.resource_path}"'
        return Response("who are you?", 401, {"www-authenticate": about})

    async def resource(self, request: Request) -> Response:
        self.looked_up.append(request.url.path)
        about = {"resource": self.url, "authorization_servers": [self.elsewhere or self.origin]}
        return JSONResponse(about | self.resource_members)

    async def metadata(self, _: Request) -> Response:
        about = {"issuer": self.origin, "code_challenge_methods_supported": ["S256"]}
        about |= {name: f"{self.origin}/{path}" for name, path in PATHS.items()} | self.metadata_members
        return JSONResponse({name: value for name, value in about.items() if value is not None})

    async def register(self, request: Request) -> Response:
        if self.metadata_members.get("registration_endpoint", "") is None:
            return HTMLResponse("<!doctype html><title>Not here</title>", 404)
        client = await request.json()
        self.registered.append(client)
        client_id = f"client-{len(self.registered)}"
        self._known.add(client_id)
        return JSONResponse({**client, "client_id": client_id} | self.registration_members, 201)

    def knows(self, client_id: str | None) -> bool:
        """Return whether a client has registered; a server at which nobody has, knows those of its operator."""
        return not self.registered or client_id in self._known

    async def authorize(self, request: Request) -> Response:
        self.visits.append(dict(request.query_params))
        asked = request.query_params
        if not self.knows(asked["client_id"]):
            return HTMLResponse("<h1>unknown client</h1>", 400)
        code = f"code-{len(self._scopes)}"
        self._scopes[code] = asked.get("scope", "")
        back = {"code": code, "state": asked["state"]} | ({"iss": self.iss} if self.iss else {})
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(back)}", 302)

    async def token(self, request: Request) -> Response:
        form = await request.form()
        if "client_id" in form and not self.knows(str(form["client_id"])):
            self.grants.append({name: str(value) for name, value in form.items()})
            return JSONResponse({"error": "invalid_grant" if self.quiet else "invalid_client"}, 401)
        return await super().token(request)


PATHS = {"authorization_endpoint": "authorize", "token_endpoint": "token", "registration_endpoint": "register"}


@dataclass
class GitHub(Shaped):
    """No registration; form-encoded tokens unless JSON is asked for; errors with status 200; tokens without an end."""

    stubborn: bool = False
    """Whether it answers form-encoded whatever is asked for."""
    error: str = ""
    """What it answers instead of a token."""
    accepted: list[str | None] = field(default_factory=list)
    """In which form tokens were asked for."""

    def __post_init__(self) -> None:
        self.metadata_members = {"registration_endpoint": None}

    async def token(self, request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        self.grants.append(form)
        self.authenticated.append(request.headers.get("authorization"))
        self.accepted.append(request.headers.get("accept"))
        token = f"secret-token-{len(self.grants)}"
        members = {"access_token": token, "scope": "repo,gist", "token_type": "bearer"}
        if self.error:
            members = {"error": self.error, "error_description": "The code passed is incorrect or expired."}
        else:
            self.valid[token] = "repo"
        if self.accepted[-1] == "application/json" and not self.stubborn:
            return JSONResponse(members)
        return PlainTextResponse(urlencode(members), media_type="application/x-www-form-urlencoded")


@dataclass
class Entra(Shaped):
    """A tenant's path in the issuer, metadata where only OpenID has them, no registration, no `resource`."""

    tenant: str = "/8eaef023/v2.0"

    def routes(self) -> list[Route]:
        others = [each for each in super().routes() if not each.path.endswith("oauth-authorization-server")]
        return [*others, Route(f"{self.tenant}/.well-known/openid-configuration", self.metadata)]

    async def metadata(self, request: Request) -> Response:
        offered = ["openid", "profile", "email", "offline_access"]
        self.metadata_members = {
            "issuer": f"{self.origin}{self.tenant}",
            "registration_endpoint": None,
            "scopes_supported": offered,
            "token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt"],
        }
        return await super().metadata(request)

    async def authorize(self, request: Request) -> Response:
        if "resource" not in request.query_params:
            return await super().authorize(request)
        asked = request.query_params
        self.visits.append(dict(asked))
        why = "AADSTS9010010: The resource parameter provided in the request doesn't match with the requested scopes."
        back = {"error": "invalid_target", "error_description": why, "state": asked["state"]}
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(back)}", 302)
