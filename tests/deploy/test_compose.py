"""docker-compose.yml: valid, confined, pinned, on loopback, and of one piece with the files that it mounts."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import COMPOSE, DEPLOY, ROOT, SERVICES, ran

COLLECTOR = yaml.safe_load((DEPLOY / "collector.yaml").read_text())
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())


def mounts(service: dict[str, Any]) -> list[list[str]]:
    return [each.split(":") for each in service.get("volumes", ())]


def dockerfile(service: dict[str, Any]) -> Path | None:
    return ROOT / service["build"]["dockerfile"] if "build" in service else None


def has_health(name: str) -> bool:
    service, built = SERVICES[name], dockerfile(SERVICES[name])
    return "healthcheck" in service or (built is not None and "\nHEALTHCHECK " in built.read_text())


def test_compose_takes_the_file(tool: Callable[[str], str]) -> None:
    shown = yaml.safe_load(ran(tool("docker-compose"), "--file", ROOT / "docker-compose.yml", "config"))
    assert set(shown["services"]) == set(SERVICES)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_no_more_rights_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "devices", "pid", "ipc"} & set(service)
    assert not any("docker.sock" in part for mount in mounts(service) for part in mount)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_bounded_and_comes_back(name: str) -> None:
    service = SERVICES[name]
    assert {"mem_limit", "cpus", "pids_limit"} <= set(service)
    assert set(service["logging"]["options"]) == {"max-size", "max-file"}
    assert service["restart"] == "unless-stopped"


def test_ports_are_published_on_loopback_and_the_hub_has_none() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert all(port.startswith("127.0.0.1:") for each in ports.values() for port in each)
    assert not {"hub", "web", "demo", "collector"} & set(ports)
    assert not any(service.get("network_mode") == "host" for service in SERVICES.values())


def test_images_that_are_not_built_here_have_exact_versions() -> None:
    images = [service["image"] for service in SERVICES.values() if "build" not in service]
    bases = [line.split()[1] for path in built() for line in path.read_text().splitlines() if line.startswith("FROM")]
    assert len(set(bases)) == 1
    assert [image for image in images + bases if not re.search(r":v?\d+\.\d+\.\d+", image)] == []


def test_what_is_mounted_is_there_and_cannot_be_written() -> None:
    volumes = set(COMPOSE["volumes"])
    for service in SERVICES.values():
        for source, _, *mode in mounts(service):
            assert source in volumes or ((ROOT / source).exists() and mode == ["ro"]), source
    assert mounts(SERVICES["web"]) == [["state", "/var/lib/hubbub", "ro"]]


def test_whoever_waits_for_a_healthy_service_waits_for_one_that_can_say_so() -> None:
    waited = [
        (other, how["condition"]) for each in SERVICES.values() for other, how in each.get("depends_on", {}).items()
    ]
    assert waited
    for other, condition in waited:
        assert has_health(other) == (condition == "service_healthy"), other


def test_the_door_leads_to_the_inbox() -> None:
    inside = SERVICES["web"]["entrypoint"][3]
    listen, forward = SERVICES["door"]["command"]
    (port,) = SERVICES["door"]["ports"]
    assert SERVICES["web"]["network_mode"] == "service:door"
    assert forward == f"TCP:{inside}"
    # The link that the inbox prints can be opened as it is.
    assert port == f"{inside}:{listen.removeprefix('TCP-LISTEN:').partition(',')[0]}"


def test_each_part_of_the_collector_is_defined_and_used() -> None:
    pipelines = COLLECTOR["service"]["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        assert {name for each in pipelines for name in each[kind]} == set(COLLECTOR[kind])
    # The limiter must come first, or it limits nothing.
    assert all(each["processors"][0] == "memory_limiter" for each in pipelines)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_telemetry_goes_where_somebody_listens() -> None:
    receiver = COLLECTOR["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    assert SERVICES["hub"]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == f"http://collector:{port_of(receiver)}"
    assert COLLECTOR["exporters"]["otlp_grpc/jaeger"]["endpoint"] == "jaeger:4317"
    own = COLLECTOR["service"]["telemetry"]["metrics"]["readers"][0]["pull"]["exporter"]["prometheus"]["port"]
    served = {f"collector:{port_of(COLLECTOR['exporters']['prometheus']['endpoint'])}", f"collector:{own}"}
    targets = {t for job in PROMETHEUS["scrape_configs"] for each in job["static_configs"] for t in each["targets"]}
    assert targets == served | {"127.0.0.1:9090"}
    for name in ("hub", "collector", "jaeger", "prometheus", "grafana"):
        assert "telemetry" in SERVICES[name]["networks"]


def test_grafana_finds_its_sources_and_its_dashboard() -> None:
    provisioning = DEPLOY / "grafana/provisioning"
    sources = yaml.safe_load((provisioning / "datasources/hubbub.yaml").read_text())["datasources"]
    assert {each["uid"]: each["url"] for each in sources} == {
        "prometheus": "http://prometheus:9090",
        "jaeger": "http://jaeger:16686",
    }
    (provider,) = yaml.safe_load((provisioning / "dashboards/hubbub.yaml").read_text())["providers"]
    inside = {target: source for source, target, *_ in mounts(SERVICES["grafana"])}
    folder = ROOT / inside[provider["options"]["path"]]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (folder / Path(home).name).is_file()


def built() -> list[Path]:
    return sorted({path for service in SERVICES.values() if (path := dockerfile(service))})
