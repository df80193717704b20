"""Tokens of an identity provider: which are believed, and what they give."""

import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import anyio
import grpc
import jwt
import pytest
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from hubbub.v1 import server_pb2
from hubbubd.config.sections.network import GrantSettings
from hubbubd.core.access import Permission
from hubbubd.errors import HubError, PermissionDenied, Unauthenticated, Unavailable
from hubbubd.rpc.auth import jwks
from hubbubd.rpc.auth.gate import Gate
from hubbubd.rpc.auth.grants import Grants
from hubbubd.rpc.auth.jwks import JwksCache
from hubbubd.rpc.auth.jwt import LEEWAY_S, Jwt
from hubbubd.rpc.listeners.grpc_server import SERVICES, serve
from hubbubd.rpc.listeners.sockets import open_listener
from hubbubd.runtime.hub import Hub

from .conftest import LIMIT_S, TOKEN, Caller

AUDIENCE = "hubbub"
GRANTS = (
    GrantSettings(who="oidc:ada", roles=("viewer", "caller"), servers=("away", "dev-*")),
    GrantSettings(who="oidc:robot-*", roles=("responder",)),
    GrantSettings(who="oidc-role:hub admins", roles=("admin",)),
    GrantSettings(who="oidc-role:ops", roles=("operator",)),
    GrantSettings(who="cert:eve", roles=("admin",)),
)


@cache
def private(kind: str, number: int = 0) -> Any:
    """A key; each number has its own."""
    match kind:
        case "RSA":
            return rsa.generate_private_key(65537, 2048)
        case "weak":
            return rsa.generate_private_key(65537, 1024)
        case "EC":
            return ec.generate_private_key(ec.SECP256R1())
        case _:
            return ed25519.Ed25519PrivateKey.generate()


def published(kid: str | None, key: Any, **more: Any) -> dict[str, Any]:
    """The key as it stands in a JWK set."""
    kind = {rsa.RSAPrivateKey: "RS256", ec.EllipticCurvePrivateKey: "ES256", ed25519.Ed25519PrivateKey: "EdDSA"}
    algorithm = next(name for base, name in kind.items() if isinstance(key, base))
    public = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**public, **({"kid": kid} if kid else {}), "use": "sig", **more}


def encoded(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@dataclass
class Provider:
    """An identity provider on loopback, and what it has been asked."""

    issuer: str = ""
    keys: list[dict[str, Any]] = field(default_factory=lambda: [published("one", private("RSA"))])
    answer: Callable[["Provider", str], Response] | None = None
    asked: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = Request(scope).url.path
        self.asked.append(path)
        await (self.answer or Provider.usual)(self, path)(scope, receive, send)

    def usual(self, path: str) -> Response:
        if path == "/.well-known/openid-configuration":
            return JSONResponse({"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys"})
        return JSONResponse({"keys": self.keys})

    def token(self, key: Any = None, algorithm: str = "RS256", kid: str | None = "one", **claims: Any) -> str:
        """A token as it would give to Ada; claims that are None are left out."""
        usual = {"iss": self.issuer, "aud": AUDIENCE, "sub": "ada", "exp": int(time.time()) + 600}
        given = {name: value for name, value in (usual | claims).items() if value is not None}
        headers = {"kid": kid} if kid is not None else {}
        return jwt.encode(given, key or private("RSA"), algorithm, headers=headers)

    def jwt(self, roles: str | None = None, pause_s: float = 0, jwks_url: str | None = None, name: str = "sub") -> Jwt:
        """What believes it."""
        known = JwksCache(self.issuer, jwks_url, pause_s=pause_s)
        return Jwt(known, Grants(GRANTS), issuer=self.issuer, audience=AUDIENCE, name_claim=name, roles_claim=roles)


class _Server(uvicorn.Server):
    def capture_signals(self) -> Any:
        return anyio.CancelScope()


@asynccontextmanager
async def listening(provider: Provider) -> AsyncIterator[None]:
    config = uvicorn.Config(
        provider, http="h11", ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1
    )
    server = _Server(config)
    listener, address = open_listener(provider.issuer.removeprefix("http://") or "127.0.0.1:0")
    provider.issuer = f"http://{address}"
    with listener:
        async with anyio.create_task_group() as serving:
            serving.start_soon(server.serve, [listener])
            try:
                yield
            finally:
                server.should_exit = True


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    """One that is up."""
    found = Provider()
    async with listening(found):
        yield found


async def refusal(jwt: Jwt, token: str) -> HubError:
    with anyio.fail_after(LIMIT_S), pytest.raises(HubError) as caught:
        await jwt.principal(token)
    return caught.value


async def test_a_token_of_the_issuer_gives_what_is_granted_to_its_subject(provider: Provider) -> None:
    until = int(time.time()) + 600
    found = await provider.jwt().principal(provider.token(exp=until))
    assert (found.name, found.expires_at, found.may_name_others) == ("oidc:ada", until + LEEWAY_S, False)
    assert found.servers(Permission.SEE) == {"away", "dev-*"}
    assert found.may(Permission.CALL, "dev-1")
    assert not found.may(Permission.ANSWER, "away")


@pytest.mark.parametrize("token", ["", "hbt_abc", "a.b", "a.b.c.d", "x" * 100])
async def test_what_is_no_jwt_is_left_to_others(provider: Provider, token: str) -> None:
    assert await provider.jwt().principal(token) is None
    assert provider.asked == []


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [("RSA", "RS256"), ("RSA", "RS512"), ("RSA", "PS256"), ("EC", "ES256"), ("Ed", "EdDSA")],
)
async def test_signatures_whose_key_is_no_secret_are_verified(provider: Provider, kind: str, algorithm: str) -> None:
    key = private(kind)
    provider.keys = [published("one", key)]
    assert await provider.jwt().principal(provider.token(key, algorithm)) is not None
    stranger = {"RSA": rsa.generate_private_key(65537, 2048), "EC": ec.generate_private_key(ec.SECP256R1())}
    forged = provider.token(stranger.get(kind) or ed25519.Ed25519PrivateKey.generate(), algorithm)
    assert (await refusal(provider.jwt(), forged)).reason == "TOKEN_INVALID"


NOW = int(time.time())
DAY_S = 86_400  # longer than any run of all tests, which begins now
WRONG: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://elsewhere.example"},
    "the issuer with a slash more": {"iss": "/"},
    "no issuer": {"iss": None},
    "another audience": {"aud": "mail"},
    "other audiences": {"aud": ["mail", "Hubbub"]},
    "no audience": {"aud": None},
    "no end": {"exp": None},
    "an end that is no number": {"exp": "soon"},
    "an end at infinity": {"exp": float("inf")},
    "a begin to come": {"nbf": NOW + DAY_S},
    "a begin that is no number": {"nbf": "x"},
    "made in the future": {"iat": NOW + DAY_S},
    "no subject": {"sub": None},
    "an empty subject": {"sub": ""},
    "a subject that is no name": {"sub": 7},
    "a subject of many": {"sub": ["ada"]},
    "a subject that cannot be shown": {"sub": "ada\n"},
    "a subject without end": {"sub": "a" * 300},
}


@pytest.mark.parametrize("what", WRONG)
async def test_one_wrong_claim_is_enough(provider: Provider, what: str) -> None:
    claims = dict(WRONG[what])
    if claims.get("iss") == "/":
        claims["iss"] = f"{provider.issuer}/"
    token = provider.jwt(), provider.token
    if isinstance(claims.get("sub"), int | list):  # the library would not sign these
        header, body = {"alg": "RS256", "kid": "one"}, {"iss": provider.issuer, "aud": AUDIENCE, "exp": NOW + DAY_S}
        signed = f"{encoded(header)}.{encoded(body | claims)}"
        signature = jwt.get_algorithm_by_name("RS256").sign(signed.encode(), private("RSA"))
        refused = await refusal(token[0], f"{signed}.{encoded(signature)}")
    else:
        refused = await refusal(token[0], token[1](**claims))
    assert isinstance(refused, Unauthenticated)
    assert refused.reason in ("TOKEN_INVALID", "NAME_INVALID")


async def test_a_token_that_is_over_says_so_and_clocks_may_differ_a_little(provider: Provider) -> None:
    assert (
        await refusal(provider.jwt(), provider.token(exp=int(time.time()) - 10 * LEEWAY_S))
    ).reason == "TOKEN_EXPIRED"
    assert await provider.jwt().principal(provider.token(exp=int(time.time()) - LEEWAY_S // 2)) is not None
    assert await provider.jwt().principal(provider.token(nbf=int(time.time()) + LEEWAY_S // 2)) is not None


@pytest.mark.parametrize("written", [int, str])
async def test_a_token_that_was_good_is_refused_as_soon_as_it_is_over(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, written: type
) -> None:
    jwt, over_at = provider.jwt(), int(time.time()) + DAY_S
    token = provider.token(exp=written(over_at))
    for _ in range(2):
        assert await jwt.principal(token) is not None
    monkeypatch.setattr(time, "time", lambda: over_at + LEEWAY_S - 1.0)
    assert await jwt.principal(token) is not None
    monkeypatch.setattr(time, "time", lambda: over_at + LEEWAY_S)
    assert (await refusal(jwt, token)).reason == "TOKEN_EXPIRED"


async def test_no_token_says_by_itself_how_it_is_to_be_believed(provider: Provider) -> None:
    body = encoded({"iss": provider.issuer, "aud": AUDIENCE, "sub": "ada", "exp": NOW + DAY_S})
    public = private("RSA").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for name in ("none", "None", "NONE", "", "HS256", "HS512", "RS1", "dir", None, 7, ["RS256"]):
        signed = f"{encoded({'alg': name, 'kid': 'one'})}.{body}"
        # As somebody would who takes the public key for a shared secret.
        signature = jwt.get_algorithm_by_name("HS256").sign(signed.encode(), public)
        for token in (f"{signed}.{encoded(signature)}", f"{signed}."):
            assert (await refusal(provider.jwt(), token)).reason == "TOKEN_INVALID", name
    stranger = private("RSA", 1)
    brought = {"jwk": published("one", stranger), "jku": "https://evil.example/keys", "x5u": "https://evil.example"}
    token = jwt.encode({"iss": provider.issuer, "aud": AUDIENCE, "sub": "ada", "exp": NOW + DAY_S}, stranger, "RS256",
                       headers={"kid": "one", **brought})  # fmt: skip
    assert (await refusal(provider.jwt(), token)).reason == "TOKEN_INVALID"


@pytest.mark.parametrize(
    "token",
    [
        "..",
        "a.b.c",
        f"{encoded(b'{')}.e30.x",
        f"{encoded([])}.e30.x",
        "\u00e9.\u00e9.\u00e9",
        f"{encoded({'kid': 1})}..",
    ],
)
async def test_what_only_looks_like_a_token_is_refused(provider: Provider, token: str) -> None:
    assert (await refusal(provider.jwt(), token)).reason == "TOKEN_INVALID"


@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits long")
async def test_a_key_is_used_only_for_what_it_is_published_for(provider: Provider) -> None:
    for more in ({"use": "enc"}, {"alg": "RS512"}, {"alg": "HS256"}, {"kty": "oct"}, {"kid": 5}):
        provider.keys = [published("one", private("RSA")) | more, published("two", private("EC"))]
        assert (await refusal(provider.jwt(), provider.token())).reason == "TOKEN_INVALID", more
    provider.keys = [published("one", private("EC"))]
    assert (await refusal(provider.jwt(), provider.token())).reason == "TOKEN_INVALID"
    provider.keys = [published("one", private("weak"))]
    assert "1024 bits" in str(await refusal(provider.jwt(), provider.token(private("weak"))))


async def test_a_key_of_a_kind_that_is_not_known_hides_no_other(provider: Provider) -> None:
    provider.keys = [{"kty": "XX", "kid": "x"}, {}, 7, {"kty": "EC", "kid": "y"}, published("one", private("RSA"))]  # type: ignore[list-item]
    assert await provider.jwt().principal(provider.token()) is not None


async def test_a_token_without_a_key_id_is_taken_where_there_is_one_key_only(provider: Provider) -> None:
    assert await provider.jwt().principal(provider.token(kid=None)) is not None
    provider.keys.append(published("two", private("EC")))
    assert (await refusal(provider.jwt(), provider.token(kid=None))).reason == "TOKEN_INVALID"


async def test_a_rotated_key_is_found_and_a_withdrawn_one_is_forgotten(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    jwt = provider.jwt()
    old = provider.token()
    assert await jwt.principal(old) is not None
    provider.keys = [published("two", private("EC"))]
    assert await jwt.principal(old) is not None  # the keys are fresh enough
    assert await jwt.principal(provider.token(private("EC"), "ES256", "two")) is not None
    assert (await refusal(jwt, old)).reason == "TOKEN_INVALID"
    provider.keys = [published("three", private("RSA"))]
    monkeypatch.setattr(jwks, "FRESH_S", 0.0)
    assert (await refusal(jwt, provider.token(private("EC"), "ES256", "two"))).reason == "TOKEN_INVALID"


async def test_unknown_key_ids_make_the_hub_ask_only_now_and_then(provider: Provider) -> None:
    jwt = provider.jwt(pause_s=1000)
    assert await jwt.principal(provider.token()) is not None
    for number in range(20):
        assert (await refusal(jwt, provider.token(kid=f"made up {number}"))).reason == "TOKEN_INVALID"
    assert len(provider.asked) == 2  # where the keys are, and the keys


async def test_without_the_issuer_its_last_keys_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Provider()
    async with listening(provider):
        jwt = provider.jwt()
        assert await jwt.principal(provider.token()) is not None
    monkeypatch.setattr(jwks, "FRESH_S", 0.0)
    assert await jwt.principal(provider.token()) is not None
    assert (await refusal(jwt, provider.token(kid="new"))).reason == "TOKEN_INVALID"
    never = await refusal(provider.jwt(), provider.token())
    assert isinstance(never, Unavailable)
    assert never.reason == "ISSUER_UNREACHABLE"
    async with listening(provider):
        assert await jwt.principal(provider.token()) is not None


def _large(provider: Provider, path: str) -> Response:
    usual = provider.usual(path)
    return Response(bytes(usual.body).ljust(jwks.MAX_BYTES + 1), media_type="application/json")


def _elsewhere(provider: Provider, path: str) -> Response:
    return RedirectResponse(f"{provider.issuer}/other")


def _of_another(provider: Provider, path: str) -> Response:
    if path == "/keys":
        return provider.usual(path)
    return JSONResponse({"issuer": "https://elsewhere.example", "jwks_uri": f"{provider.issuer}/keys"})


def _in_the_clear(provider: Provider, path: str) -> Response:
    if path == "/keys":
        return provider.usual(path)
    anywhere = provider.issuer.replace("127.0.0.1", "0.0.0.0")  # leads to the same place, and is not loopback
    return JSONResponse({"issuer": provider.issuer, "jwks_uri": f"{anywhere}/keys"})


def _empty(provider: Provider, path: str) -> Response:
    return JSONResponse({"keys": []}) if path == "/keys" else provider.usual(path)


def _strange(provider: Provider, path: str) -> Response:
    return JSONResponse([{}]) if path == "/keys" else provider.usual(path)


def _broken(provider: Provider, path: str) -> Response:
    return Response("{", 200)


def _failing(provider: Provider, path: str) -> Response:
    return Response("{}", 500)


@pytest.mark.parametrize(
    "answer", [_large, _elsewhere, _of_another, _in_the_clear, _empty, _strange, _broken, _failing]
)
async def test_an_issuer_that_answers_nonsense_is_as_good_as_none(
    provider: Provider, answer: Callable[[Provider, str], Response]
) -> None:
    provider.answer = answer
    jwt = provider.jwt()
    assert (await refusal(jwt, provider.token())).reason == "ISSUER_UNREACHABLE"
    provider.answer = None
    assert await jwt.principal(provider.token()) is not None


async def test_keys_may_be_somewhere_else_than_discovery_says(provider: Provider) -> None:
    assert await provider.jwt(jwks_url=f"{provider.issuer}/here").principal(provider.token()) is not None
    assert provider.asked == ["/here"]


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        ("groups", {"groups": ["hub admins", "others", 7]}),
        ("realm_access.roles", {"realm_access": {"roles": ["hub admins"]}}),
        ("https://example.com/roles", {"https://example.com/roles": ["hub admins"]}),
    ],
)
async def test_roles_are_granted_by_the_claim_that_lists_them(
    provider: Provider, claim: str, value: dict[str, Any]
) -> None:
    found = await provider.jwt(roles=claim).principal(provider.token(sub="somebody", **value))
    assert found.may_everywhere(Permission.ADMINISTER)


async def test_words_of_one_string_are_roles_too(provider: Provider) -> None:
    found = await provider.jwt(roles="scope").principal(provider.token(sub="somebody", scope="openid ops"))
    assert found.may(Permission.OPERATE, "any")


@pytest.mark.parametrize(
    "claims", [{}, {"groups": "ops*"}, {"groups": {"ops": 1}}, {"groups": [["ops"]]}, {"roles": ["ops"]}]
)
async def test_somebody_to_whom_nothing_is_granted_is_told_so(provider: Provider, claims: dict[str, Any]) -> None:
    refused = await refusal(provider.jwt(roles="groups"), provider.token(sub="stranger", **claims))
    assert isinstance(refused, PermissionDenied)
    assert (refused.reason, refused.metadata) == ("NOTHING_GRANTED", {"principal": "oidc:stranger"})


async def test_no_name_of_the_issuer_is_one_of_another_authority(provider: Provider) -> None:
    for name in ("cert:eve", "eve", "oidc:ada", "local", "ADA", "robot"):
        assert (await refusal(provider.jwt(), provider.token(sub=name))).reason == "NOTHING_GRANTED"
    found = await provider.jwt(name="email").principal(provider.token(sub="x", email="robot-7"))
    assert found.name == "oidc:robot-7"


async def test_a_call_is_let_in_by_such_a_token_alone(hub: Hub, provider: Provider) -> None:
    get = SERVICES["ServerService"].methods_by_name["GetServer"]
    gate = Gate(TOKEN, hub.clock, authenticators=(provider.jwt(),))
    async with (
        serve(hub, listen="127.0.0.1:0", gate=gate, grace_s=2) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        good = Caller(channel, (("authorization", f"Bearer {provider.token()}"),))
        assert (await good(get, server_pb2.GetServerRequest(name="away"))).server.name == "away"
        late = Caller(channel, (("authorization", f"Bearer {provider.token(exp=NOW - 10 * LEEWAY_S)}"),))
        assert (await late.refused(get, b"")).reason == "TOKEN_EXPIRED"
        huge = Caller(channel, (("authorization", f"Bearer {provider.token(pad='x' * 6500)}"),))
        assert (await huge.refused(get, b"")).reason == "TOKEN_INVALID"
