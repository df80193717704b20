"""The files of Compose: valid, confined, pinned, on loopback, and of one piece with the files that they mount."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hubbubd.config import load_settings
from hubbubd.store.vault.keys import VaultKeys

from .conftest import COMPOSE, DEPLOY, FLEET, MEMBERS, ROOT, SERVICES, ran

COLLECTOR = yaml.safe_load((DEPLOY / "collector.yaml").read_text())
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
FILES: dict[str, dict[str, Any]] = {"docker-compose.yml": COMPOSE, "docker-compose.fleet.yml": FLEET}
EACH = [
    pytest.param(file, name, id=f"{file}: {name}") for file, content in FILES.items() for name in content["services"]
]
VERSION = re.compile(r":v?\d+\.\d+\.\d+|postgres:\d+\.\d+")
"""An exact version; those of PostgreSQL have two numbers."""
ONCE = {"keys"}
"""The services that end when they have done their work."""


def services(file: str) -> dict[str, dict[str, Any]]:
    return FILES[file]["services"]


def mounts(service: dict[str, Any]) -> list[list[str]]:
    return [each.split(":") for each in service.get("volumes", ())]


def dockerfile(service: dict[str, Any]) -> Path | None:
    """Of a service's image, whichever service builds it."""
    made = [each for file in FILES for each in services(file).values() if each.get("image") == service.get("image")]
    return next((ROOT / each["build"]["dockerfile"] for each in made if "build" in each), None)


def has_health(service: dict[str, Any]) -> bool:
    built = dockerfile(service)
    return "healthcheck" in service or (built is not None and "\nHEALTHCHECK " in built.read_text())


@pytest.mark.parametrize("file", FILES)
def test_compose_takes_the_file(file: str, tool: Callable[[str], str], tmp_path: Path) -> None:
    env = os.environ | {"DATABASE_PASSWORD": "a password"}
    # Debian's is Compose 1, which does not know this one key yet (it came with 2.20).
    known = tmp_path / file
    known.write_text(re.sub(r"^ +start_interval: .*\n", "", (ROOT / file).read_text(), flags=re.MULTILINE))
    words = ("--file", known, "--project-directory", ROOT, "config")
    shown = yaml.safe_load(ran(tool("docker-compose"), *words, env=env))
    assert set(shown["services"]) == set(services(file))


@pytest.mark.parametrize(("file", "name"), EACH)
def test_a_service_has_no_more_rights_than_it_needs(file: str, name: str) -> None:
    service = services(file)[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "devices", "pid", "ipc"} & set(service)
    assert not any("docker.sock" in part for mount in mounts(service) for part in mount)


@pytest.mark.parametrize(("file", "name"), EACH)
def test_a_service_is_bounded_and_comes_back(file: str, name: str) -> None:
    service = services(file)[name]
    assert {"mem_limit", "cpus", "pids_limit"} <= set(service)
    assert set(service["logging"]["options"]) == {"max-size", "max-file"}
    assert service["restart"] == ("no" if name in ONCE else "unless-stopped")


@pytest.mark.parametrize("file", FILES)
def test_each_image_is_built_once_and_a_local_one_is_fetched_from_nowhere(file: str) -> None:
    local = [service for service in services(file).values() if service["image"].endswith(":local")]
    built_here = [service["image"] for service in local if "build" in service]
    assert sorted(built_here) == sorted({service["image"] for service in local})
    assert all("build" in service or service["pull_policy"] == "never" for service in local)


@pytest.mark.parametrize(("file", "name"), EACH)
def test_whoever_waits_for_health_hears_of_it_at_once(file: str, name: str) -> None:
    check = services(file)[name].get("healthcheck")
    assert check is None or check["start_interval"] == "1s"
    built_of = dockerfile(services(file)[name])
    assert built_of is None or "--start-interval=1s" in built_of.read_text()


def test_the_file_with_the_password_is_not_kept_in_git_and_only_its_owner_reads_it() -> None:
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()
    (made,) = [line for line in (DEPLOY.parent / "operations.md").read_text().splitlines() if "> .env" in line]
    assert made.startswith("(umask 077 && ")


@pytest.mark.parametrize("file", FILES)
def test_ports_are_published_on_loopback_and_the_hub_has_none(file: str) -> None:
    ports = {name: service["ports"] for name, service in services(file).items() if "ports" in service}
    assert all(port.startswith("127.0.0.1:") for each in ports.values() for port in each)
    assert not {"hub", "web", "demo", "collector", "database", "kitchen", *MEMBERS} & set(ports)
    assert not any(service.get("network_mode") == "host" for service in services(file).values())


def test_images_that_are_not_built_here_have_exact_versions() -> None:
    all_of_them = {service["image"] for file in FILES for service in services(file).values()}
    images = sorted(image for image in all_of_them if not image.endswith(":local"))
    stages = [line.split()[1:] for path in built() for line in path.read_text().splitlines() if line.startswith("FROM")]
    bases = [base for base, *name in stages if base not in {each[-1] for each in stages if len(each) > 1}]
    assert len(set(bases)) == 1
    assert [image for image in images + bases if not VERSION.search(image)] == []


@pytest.mark.parametrize("file", FILES)
def test_what_is_mounted_is_there_and_cannot_be_written(file: str) -> None:
    volumes = set(FILES[file]["volumes"])
    for service in services(file).values():
        for source, _, *mode in mounts(service):
            assert source in volumes or ((ROOT / source).exists() and mode == ["ro"]), source
    ((source, target, mode),) = mounts(services(file)["web"])
    assert source.startswith("state")
    assert (target, mode) == ("/var/lib/hubbub", "ro")


@pytest.mark.parametrize("file", FILES)
def test_whoever_waits_for_a_healthy_service_waits_for_one_that_can_say_so(file: str) -> None:
    waited = [
        (other, how["condition"])
        for each in services(file).values()
        for other, how in each.get("depends_on", {}).items()
    ]
    assert waited
    for other, condition in waited:
        assert (condition == "service_completed_successfully") == (other in ONCE), other
        assert other in ONCE or has_health(services(file)[other]) == (condition == "service_healthy"), other


@pytest.mark.parametrize("file", FILES)
def test_the_door_leads_to_the_inbox(file: str) -> None:
    inside = services(file)["web"]["entrypoint"][3]
    listen, forward = services(file)["door"]["command"]
    (port,) = services(file)["door"]["ports"]
    assert services(file)["web"]["network_mode"] == "service:door"
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
    return sorted({path for file in FILES for service in services(file).values() if (path := dockerfile(service))})


def test_each_member_has_a_configuration_that_is_taken_with_the_keys_that_are_made(tmp_path: Path) -> None:
    inside = "/var/lib/hubbub-keys"
    script = (DEPLOY / "fleet/keys.sh").read_text().replace(inside, str(tmp_path))
    for _ in range(2):  # as with each `up`
        ran("sh", "-c", script, env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})
    assert VaultKeys.load(tmp_path / "vault.key", {}) is not None
    config = tmp_path / "hubbub.toml"
    config.write_text((DEPLOY / "fleet/hubbub.toml").read_text().replace(inside, str(tmp_path)))
    for name in MEMBERS:
        service = FLEET["services"][name]
        assert service["command"] == ["--config", "/etc/hubbub/hubbub.toml"]
        env = {key: value.replace(inside, str(tmp_path)) for key, value in service["environment"].items()}
        settings = load_settings(["--config", str(config)], env).hub
        assert settings.fleet is not None
        assert settings.fleet.name == name
        assert settings.fleet.reached_at == f"{name}:{settings.fleet.listen.rpartition(':')[2]}"
        assert settings.store.url is not None
        assert "@database/" in settings.store.url.get_secret_value()
        assert {"fleet", "servers"} <= set(service["networks"])
        assert ["keys", inside, "ro"] in mounts(service)
