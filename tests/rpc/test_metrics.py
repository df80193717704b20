"""Who gets the metrics: programs on this machine that ask this machine."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from hubbubd.rpc.listeners.metrics import serve_metrics

from .conftest import LIMIT_S


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    """A client."""
    async with (
        serve_metrics("127.0.0.1:0", lambda: ("text/plain", b"up 1")) as url,
        httpx2.AsyncClient(
            base_url=url.removesuffix("/metrics"), verify=False, trust_env=False, timeout=LIMIT_S
        ) as http,
    ):
        yield http


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "localhost:9464", "[::1]:9464"])
async def test_metrics_are_served_under_the_names_of_loopback(http: httpx2.AsyncClient, host: str) -> None:
    assert (await http.get("/metrics", headers={"host": host})).text == "up 1"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil.example", "192.0.2.1", "",
             "localhost@evil.example", "[::1"],
)  # fmt: skip
async def test_a_page_that_made_its_name_mean_this_machine_gets_no_metrics(http: httpx2.AsyncClient, host: str) -> None:
    answer = await http.get("/metrics", headers={"host": host})
    assert (answer.status_code, answer.text) == (421, "")


async def test_nothing_else_is_served_there(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/other")).status_code == 404
    assert (await http.post("/metrics")).status_code == 405
