"""Prometheus takes what it is given, and the dashboard and the alarms ask for the same metrics."""

import importlib.util
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import httpx2
import pytest
import yaml

from hubbubd.telemetry.metrics import METRICS

from ..telemetry.test_metrics_document import prometheus_names
from .conftest import BOARD, DEPLOY, LIMIT_S, SERVICES, queries, ran

FOLDER = DEPLOY / "prometheus"
RULES = yaml.safe_load((FOLDER / "hubbub.rules.yml").read_text())["groups"][0]["rules"]
METRIC = re.compile(r"\b(?:hubbub|mcp)_[a-z_]+")


def test_the_configuration_is_valid(tool: Callable[[str], str]) -> None:
    ran(tool("promtool"), "check", "config", "--lint=all", "--lint-fatal", "prometheus.yml", cwd=FOLDER)


def test_the_alarms_go_off_when_they_should(tool: Callable[[str], str]) -> None:
    ran(tool("promtool"), "test", "rules", "hubbub.rules.test.yml", cwd=FOLDER)


def test_every_alarm_is_tested_and_raised_there() -> None:
    tests = yaml.safe_load((FOLDER / "hubbub.rules.test.yml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    for rule in RULES:
        expected = [bool(case.get("exp_alerts")) for case in cases if case["alertname"] == rule["alert"]]
        assert {True, False} == set(expected), rule["alert"]


def test_the_alarms_ask_for_nothing_that_the_dashboard_does_not_show() -> None:
    shown = {name for query in queries() for name in METRIC.findall(query)}
    assert {name for rule in RULES for name in METRIC.findall(rule["expr"])} <= shown


def test_the_operator_s_list_of_alarms_is_complete() -> None:
    listed = re.findall(r"^\| `(Hubbub\w+)` \|", (DEPLOY.parent / "operations.md").read_text(), re.MULTILINE)
    assert listed == [rule["alert"] for rule in RULES]


def test_what_each_member_of_a_fleet_shows_whole_is_not_added_up() -> None:
    names = prometheus_names()
    whole = "|".join(names[metric.name] for metric in METRICS if metric.whole)
    added_up = re.compile(rf"\b(?:sum|count|avg)(?:_over_time)?(?: (?:by|without) \([a-z_, ]*\) )?\((?:{whole})\b")
    asked = [*queries(), *(rule["expr"] for rule in RULES)]
    assert [query for query in asked if added_up.search(query)] == []


def test_the_dashboard_is_as_its_program_writes_it() -> None:
    spec = importlib.util.spec_from_file_location("make", DEPLOY / "grafana/make.py")
    assert spec
    assert spec.loader
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    assert make.FILE.read_text() == make.made(), "run `make dashboard`"


def test_panels_have_names_and_places_of_their_own() -> None:
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


async def test_a_prometheus_with_these_files_takes_every_query(
    tool: Callable[[str], str], tmp_path: Path, free_port: int
) -> None:
    command = [
        tool("prometheus"),
        f"--config.file={FOLDER / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path}",
        f"--web.listen-address=127.0.0.1:{free_port}",
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{free_port}"
        async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=LIMIT_S) as client:
            await until_ready(client)
            kind, program, *check = SERVICES["prometheus"]["healthcheck"]["test"]
            assert kind == "CMD"
            ran(tool(program), *(word.replace("http://127.0.0.1:9090", url) for word in check))
            for query in queries():
                answer = await client.get("/api/v1/query", params={"query": query})
                assert answer.json()["status"] == "success", query
            groups = (await client.get("/api/v1/rules")).json()["data"]["groups"]
            assert [rule["name"] for rule in groups[0]["rules"]] == [rule["alert"] for rule in RULES]
    finally:
        process.terminate()
        process.wait(LIMIT_S)


async def until_ready(client: httpx2.AsyncClient) -> None:
    with anyio.fail_after(LIMIT_S):
        while True:
            try:
                if (await client.get("/-/ready")).status_code == 200:
                    return
            except httpx2.TransportError:
                pass
            await anyio.sleep(0.05)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alarm_says_what_to_do(rule: dict[str, dict[str, str]]) -> None:
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert {"summary", "description"} <= set(rule["annotations"])
