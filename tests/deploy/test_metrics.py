"""Prometheus scrapes a hub at work, and every question that the dashboard and the alarms have gets an answer."""

import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import yaml

import hubbub_client

from ..e2e.conftest import RunningHub
from .conftest import LIMIT_S, ran
from .conftest import queries as of_the_dashboard
from .test_prometheus import RULES, until_ready

SCRAPES = {"scrape_interval": "1s", "scrape_timeout": "1s"}


@pytest.fixture
async def hub(start_hub: Callable[..., Any], peer_scripts: Path) -> RunningHub:
    """A hub with metrics, and a server that asks and comes back when it dies."""
    script = str(peer_scripts / "asking_server.py")
    server = {
        "command": sys.executable,
        "args": [script, "stdio"],
        "protocol": "2025-11-25",
        "retries": -1,
        "backoff_s": [0.1],
    }
    hub = await start_hub({"asking": server}, hub={"metrics_listen": "127.0.0.1:0"})
    await hub.connected("asking")
    return hub


async def scraped(hub: RunningHub, wanted: Callable[[str], bool]) -> str:
    """What is scraped, once it is as wanted: a call is counted a moment after its caller has heard of its end."""
    async with httpx2.AsyncClient(trust_env=False, timeout=LIMIT_S) as http:
        with anyio.fail_after(LIMIT_S):
            while True:
                answer = await http.get(hub.ready["metrics"])
                assert answer.status_code == 200
                assert answer.headers["content-type"].startswith("text/plain; version=")
                if wanted(answer.text):
                    return answer.text


async def work(hub: RunningHub) -> None:
    """Calls that go well, that fail, that ask; and a server that dies now and then. Without an end."""
    while True:
        try:
            await hub.client.call_tool("asking", "cancelled_calls", {})
            await hub.client.call_tool("asking", "no such tool", {})
            call = await hub.client.start_tool("asking", "ask")
            if (await hub.call(call.id, "waiting_input", "failed")).state == "failed":
                continue  # it went to the server that was killed, whose end takes a moment
            (request, *_) = await hub.asked()
            claimed = await hub.client.inbox.claim(request.id)
            await claimed.accept({"name": "Ada"})
            await hub.call(call.id)
            (server,) = await hub.client.servers.list()
            if server.pid:
                os.kill(server.pid, signal.SIGKILL)
            await hub.connected("asking")
        except (hubbub_client.HubbubError, ProcessLookupError):
            await hub.connected("asking")


@asynccontextmanager
async def prometheus(program: str, folder: Path, port: int, target: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A Prometheus that scrapes the target every second."""
    scrape = {"job_name": "hubbub", "static_configs": [{"targets": [target]}]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump({"global": SCRAPES, "scrape_configs": [scrape]}))
    options = [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [program, f"--config.file={folder / 'prometheus.yml'}", *options], stdin=subprocess.DEVNULL, stderr=log
        )
    try:
        url = f"http://127.0.0.1:{port}"
        async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=LIMIT_S) as client:
            await until_ready(client)
            yield client
    finally:
        process.terminate()
        process.wait(LIMIT_S)


async def answers(client: httpx2.AsyncClient, query: str) -> bool:
    """Whether Prometheus has a number for a query."""
    answer = (await client.get("/api/v1/query", params={"query": query})).json()
    assert answer["status"] == "success", answer
    return any(not math.isnan(float(series["value"][1])) for series in answer["data"]["result"])


async def test_every_query_of_the_dashboard_and_the_alarms_is_answered(
    hub: RunningHub, tool: Callable[[str], str], tmp_path: Path, free_port: int
) -> None:
    target = hub.ready["metrics"].removeprefix("http://").removesuffix("/metrics")
    # An alarm is off when its comparison finds nothing: what is compared must be there.
    compared = [rule["expr"].rpartition(" == " if " == " in rule["expr"] else " > ")[0] for rule in RULES]
    left = [*of_the_dashboard(), *filter(None, compared)]
    left = [query for query in left if "hubbub_fleet_" not in query]  # this hub is no member of a fleet
    async with prometheus(tool("prometheus"), tmp_path, free_port, target) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, hub)
            try:
                with anyio.fail_after(2 * LIMIT_S):
                    while left:
                        left = [query for query in left if not await answers(client, query)]
                        await anyio.sleep(0.2)
            except TimeoutError:
                pytest.fail("no answer to:\n" + "\n".join(left))
            tasks.cancel_scope.cancel()
        assert not await answers(client, 'absent(hubbub_watchers{job="hubbub"})')


async def test_what_is_scraped_is_as_prometheus_wants_it(
    hub: RunningHub, tool: Callable[[str], str], tmp_path: Path
) -> None:
    await hub.client.call_tool("asking", "cancelled_calls", {})
    text = await scraped(hub, lambda text: 'mcp_method_name="tools/call"' in text)
    (tmp_path / "metrics").write_text(text)
    ran("sh", "-c", f"{tool('promtool')} check metrics < {tmp_path / 'metrics'}")
    assert 'hubbub_servers{state="connected"} 1.0' in text


async def test_nothing_but_metrics_is_served_beside_the_api(hub: RunningHub) -> None:
    url = hub.ready["metrics"]
    async with httpx2.AsyncClient(trust_env=False, timeout=LIMIT_S) as http:
        assert (await http.get(url.removesuffix("/metrics"))).status_code == 404
        assert (await http.get(f"{url}/more")).status_code == 404
        assert (await http.post(url)).status_code == 405
        assert (await http.get(f"{url}?name[]=up")).status_code == 200


async def test_names_that_callers_choose_stop_making_series(hub: RunningHub) -> None:
    for n in range(150):
        await hub.client.call_tool("asking", f"tool {n}", {})

    def counts(text: str) -> dict[str, float]:
        lines = [line for line in text.splitlines() if line.startswith("mcp_client_operation_duration_seconds_count")]
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    def of_others(text: str) -> float:
        return sum(count for series, count in counts(text).items() if 'gen_ai_tool_name="_OTHER"' in series)

    text = await scraped(hub, lambda text: of_others(text) >= 50)
    assert 100 < len(counts(text)) < 125
