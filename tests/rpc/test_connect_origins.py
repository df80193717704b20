"""Under which names Connect is reached, and from which pages."""

import httpx2

from hubbubd.rpc.listeners import connect
from hubbubd.runtime.hub import Hub

from .conftest import LIMIT_S, TOKEN, gate

RIGHT = {"authorization": f"Bearer {TOKEN}"}
ORIGIN = "http://localhost:5173"


async def test_a_host_of_another_name_is_refused(hub: Hub) -> None:
    named: list[str] = []
    async with (
        connect.serve_connect(hub, listen="127.0.0.1:0", gate=gate(hub), hosts=lambda: named) as base,
        httpx2.AsyncClient(base_url=base, trust_env=False, timeout=LIMIT_S) as http,
    ):
        for host, status in (("localhost:1", 200), ("127.0.0.1", 200), ("evil.example", 421), ("", 421)):
            assert (
                await http.post("/hubbub.v1.AdminService/GetSelf", json={}, headers=RIGHT | {"host": host})
            ).status_code == status, host
        named.append("evil.example")
        assert (
            await http.post("/hubbub.v1.AdminService/GetSelf", json={}, headers=RIGHT | {"host": "evil.example:7"})
        ).status_code == 200


async def test_a_page_of_an_origin_that_is_not_listed_is_refused_before_anything_is_done(hub: Hub) -> None:
    async with (
        connect.serve_connect(hub, listen="127.0.0.1:0", gate=gate(hub), origins=lambda: [ORIGIN]) as base,
        httpx2.AsyncClient(base_url=base, trust_env=False, timeout=LIMIT_S) as http,
    ):
        for origin, status in ((ORIGIN, 200), ("https://evil.example", 403), ("null", 403)):
            assert (
                await http.post("/hubbub.v1.AdminService/GetSelf", json={}, headers=RIGHT | {"origin": origin})
            ).status_code == status
