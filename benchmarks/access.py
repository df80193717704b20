"""What TLS and each kind of credential cost a call: five ways to hubs that are alike but for that."""

import json
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from measure import call_echo, run_in_turns
from processes import HubProcess, start_hub, stdio_server

import hubbub_client
from hubbub_frontend.certs import Authority

IN_FLIGHT = (1, 32)
AUDIENCE = "bench"


@dataclass(frozen=True, slots=True)
class AccessCost:
    """One row: how calls come in, and what they cost against the local token without TLS, in the same rounds."""

    way: str
    in_flight: int
    median_ms: float
    rate: float
    ratio: float


async def compare_access(directory: Path, *, rounds: int, calls: int) -> list[AccessCost]:
    """A row for each way and number of calls in flight; the ratio is of calls per second, the middle of all rounds."""
    async with AsyncExitStack() as open_:
        clients = await _connect_clients(directory, open_)
        works = [call_echo(client) for client in clients.values()]
        rows: list[AccessCost] = []
        for in_flight in IN_FLIGHT:
            series = await run_in_turns(works, rounds=rounds, calls=calls, in_flight=in_flight)
            rows += [
                AccessCost(way, in_flight, one.median_ms, one.rate, one.rate_ratio(series[0]))
                for way, one in zip(clients, series, strict=True)
            ]
    return rows


async def _connect_clients(directory: Path, open_: AsyncExitStack) -> dict[str, hubbub_client.Hub]:
    """Starts the hubs and the identity provider, and returns a client for each way, by the name of the way."""
    authority = Authority.open(directory / "certs")
    server, client_certificate = authority.issue_server(), authority.issue_client("ada")
    key = rsa.generate_private_key(65537, 2048)
    issuer = open_.enter_context(_Issuer(key))
    tls = {"tls_cert": str(server.cert), "tls_key": str(server.key)}
    oidc = {"oidc_issuer": issuer.url, "oidc_audience": AUDIENCE, "oidc_jwks_url": f"{issuer.url}/keys"}
    settings: dict[str, dict[str, Any]] = {
        "plain": {},
        "tls": {**tls, **oidc, "grants": [{"who": "oidc:ada", "roles": ["caller"]}]},
        "mutual": {**tls, "tls_client_ca": str(authority.file), "grants": [{"who": "cert:ada", "roles": ["caller"]}]},
    }
    hubs: dict[str, HubProcess] = {}
    for name, chosen in settings.items():
        (directory / name).mkdir()
        servers = {"light": stdio_server("light_stdio.py") | {"max_in_flight": 32}}
        hubs[name] = await open_.enter_async_context(start_hub(servers, directory / name, settings=chosen))

    async def made(name: str) -> str:
        created = await hubs[name].client.tokens.create(
            "ada", grants=[hubbub_client.Grant(role="caller", servers=("*",))]
        )
        return created.secret

    async def connected(name: str, **how: Any) -> hubbub_client.Hub:
        address = hubs[name].address if name == "plain" else f"https://{hubs[name].address}"
        return await open_.enter_async_context(hubbub_client.connect(address, **how))

    ca = authority.file
    return {
        "local token": hubs["plain"].client,
        "token": await connected("plain", token=await made("plain")),
        "TLS, token": await connected("tls", token=await made("tls"), ca=ca),
        "TLS, certificate": await connected("mutual", ca=ca, cert=client_certificate.cert, key=client_certificate.key),
        "TLS, JWT": await connected("tls", token=issuer.token(), ca=ca),
    }


class _Issuer:
    """An identity provider: its keys over HTTP on loopback, and a token."""

    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        public = jwt.get_algorithm_by_name("RS256").to_jwk(key.public_key(), as_dict=True)
        keys = json.dumps({"keys": [{**public, "kid": "one", "use": "sig"}]}).encode()

        class Keys(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-length", str(len(keys)))
                self.end_headers()
                self.wfile.write(keys)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._key = key
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Keys)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def token(self) -> str:
        claims = {"iss": self.url, "aud": AUDIENCE, "sub": "ada", "exp": int(time.time()) + 3600}
        return jwt.encode(claims, self._key, "RS256", headers={"kid": "one"})

    def __enter__(self) -> "_Issuer":
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
