"""The manifests for Kubernetes say what the code knows: settings, variables, ports, commands, users and times."""

import re
from ipaddress import ip_address, ip_network
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from hubbub_frontend.certs import Authority
from hubbubd.config import HubSettings, load_settings
from hubbubd.store.vault.keys import VaultKeys
from hubbubd.telemetry import setup

from ..command_tree import whole
from ..kubernetes import MADE_UP, POD, ROOT, VARIANTS, Manifests, map_paths

DOCUMENT = (ROOT / "docs/kubernetes.md").read_text()
DOCKERFILE = (ROOT / "hub/Dockerfile").read_text()
DATABASE_AWAY_S = 10


@pytest.fixture(params=VARIANTS)
def manifests(request: pytest.FixtureRequest) -> Manifests:
    return Manifests(request.param)


@pytest.fixture
def settings(manifests: Manifests, tmp_path: Path) -> HubSettings:
    """Those of the hub in POD, whose files are here."""
    authority = Authority.open(tmp_path)
    server, member = authority.issue_server(["hubbub"]), authority.issue_member(POD)
    (tmp_path / "tls.crt").symlink_to(server.cert)
    (tmp_path / "tls.key").symlink_to(server.key)
    assert (member.cert.name, member.key.name) == (f"member-{POD}.pem", f"member-{POD}-key.pem")
    at = {"/etc/hubbub-tls": tmp_path, "/etc/hubbub-members": tmp_path}
    config = tmp_path / "hubbub.toml"
    config.write_text(map_paths(manifests.settings_text, at))
    given = manifests.environment("hub").items()
    assert manifests.container("hub")["args"] == ["--config", "/etc/hubbub/hubbub.toml"]
    return load_settings(["--config", str(config)], {name: map_paths(value, at) for name, value in given}).hub


def port_of(address: str | None) -> int:
    return int(address.rpartition(":")[2])


def test_the_hub_takes_what_is_in_its_file_and_its_environment(manifests: Manifests, settings: HubSettings) -> None:
    env = manifests.environment("hub")
    assert settings.tls is not None
    assert str(settings.data_dir) == env["HUBBUBD_DATA_DIR"] == env["HUBBUB_DATA_DIR"]
    setup.require_usable_exporters(env)
    assert (settings.fleet is None) == (manifests.variant == "hub")
    if settings.fleet is not None:
        assert settings.fleet.name == POD
        assert VaultKeys.load(settings.fleet.vault_key_file, env).first
        assert settings.store.url is not None


def test_every_port_is_where_the_hub_or_the_page_listens(manifests: Manifests, settings: HubSettings) -> None:
    web = manifests.container("web")["command"]
    listens = {"grpc": settings.listen, "mcp": settings.mcp_listen, "web": web[web.index("--listen") + 1]}
    if settings.fleet is not None:
        listens["members"] = settings.fleet.listen
    ports = manifests.ports()
    assert ports == {name: port_of(listen) for name, listen in listens.items()}
    assert all(listen is not None and listen.startswith("0.0.0.0:") for listen in listens.values())
    served = {each["targetPort"]: each["port"] for one in manifests.of_kind("Service") for each in one["spec"]["ports"]}
    assert served == ports
    allowed = [rule["ports"] for one in manifests.of_kind("NetworkPolicy") for rule in one["spec"]["ingress"]]
    assert {each["port"] for rule in allowed for each in rule} == set(ports)


def lets_through(manifests: Manifests, to: str, port: int, protocol: str) -> bool:
    """Whether a pod of the hub reaches an address outside of the cluster, or `a pod` of it, by each policy together."""
    egress = [
        one["spec"]["egress"] for one in manifests.of_kind("NetworkPolicy") if "Egress" in one["spec"]["policyTypes"]
    ]
    return any(
        ("ports" not in rule or {"port": port, "protocol": protocol} in rule["ports"])
        and ("to" not in rule or any(is_peer(peer, to) for peer in rule["to"]))
        for rules in egress
        for rule in rules
    )


def is_peer(peer: dict[str, Any], to: str) -> bool:
    if to == "a pod":  # which is in no block of addresses where the network knows pods by their labels
        return peer.get("namespaceSelector") == {} and set(peer) == {"namespaceSelector"}
    address, block = ip_address(to), peer.get("ipBlock", {"cidr": "0.0.0.0/32"})
    return address in ip_network(block["cidr"]) and not any(
        address in ip_network(each) for each in block.get("except", ())
    )


@pytest.mark.parametrize(
    ("to", "port", "protocol", "passes"),
    [
        ("a pod", 53, "UDP", True),
        ("169.254.20.10", 53, "UDP", True),  # a cache of DNS on the node
        ("169.254.20.10", 53, "TCP", True),
        ("a pod", 5432, "TCP", True),  # the database
        ("a pod", 7879, "TCP", True),  # another member
        ("a pod", 4317, "TCP", True),  # a collector
        ("a pod", 8000, "TCP", True),  # an MCP server over HTTP
        ("203.0.113.9", 443, "TCP", True),
        ("10.0.0.9", 5432, "TCP", True),
        ("2001:db8::9", 443, "TCP", True),
        ("169.254.169.254", 80, "TCP", False),
        ("169.254.170.2", 80, "TCP", False),
        ("100.100.100.200", 80, "TCP", False),
        ("fd00:ec2::254", 80, "TCP", False),
    ],
)
def test_the_hub_reaches_all_that_it_needs_and_no_credentials_of_a_cloud(
    manifests: Manifests, to: str, port: int, protocol: str, passes: bool
) -> None:
    assert lets_through(manifests, to, port, protocol) is passes


def test_only_named_pods_reach_a_port_and_only_members_that_of_members(manifests: Manifests) -> None:
    member = manifests.of_kind("StatefulSet")[0]["metadata"]["name"]
    ours = [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": member}}}]
    callers: list[dict[str, Any]] = [
        {"podSelector": {}},
        {"namespaceSelector": {"matchLabels": {"hubbub-callers": "allowed"}}},
    ]
    rules = [rule for one in manifests.of_kind("NetworkPolicy") for rule in one["spec"]["ingress"]]
    found = {port["port"]: rule.get("from") for rule in rules for port in rule["ports"]}
    assert found == {name: ours if name == "members" else callers for name in manifests.ports()}


def test_secrets_are_in_secrets_alone_and_the_page_writes_no_state(manifests: Manifests) -> None:
    given = {each["name"]: each for one in manifests.pod["containers"] for each in one["env"]}
    secret = {name for name in given if name in MADE_UP or re.search("PASSWORD|TOKEN|SECRET", name)}
    assert secret == (set(MADE_UP) if manifests.variant == "fleet" else set())
    assert all("secretKeyRef" in given[name].get("valueFrom", {}) for name in secret)
    assert not re.search(r"://[^/\s]*:[^/\s]*@|password\s*=", manifests.settings_text)
    assert [each.get("readOnly") for each in manifests.container("web")["volumeMounts"] if each["name"] == "state"] == [
        True
    ]


def test_members_find_each_other_also_while_they_take_no_work(manifests: Manifests, settings: HubSettings) -> None:
    services = {each["metadata"]["name"]: each["spec"] for each in manifests.of_kind("Service")}
    name = manifests.workload["serviceName"]
    assert (services[name]["clusterIP"], services[name]["publishNotReadyAddresses"]) == ("None", True)
    if settings.fleet is not None:
        assert settings.fleet.reached_at == f"{POD}.{name}:{port_of(settings.fleet.listen)}"
        assert settings.fleet.address == f"{POD}.{name}:{port_of(settings.listen)}"


def test_a_pod_gets_the_time_that_the_hub_takes_to_end(manifests: Manifests, settings: HubSettings) -> None:
    takes = settings.shutdown_grace_s
    if settings.fleet is not None:
        takes += settings.fleet.drain_timeout_s + DATABASE_AWAY_S
    assert manifests.pod["terminationGracePeriodSeconds"] > takes


def test_what_containers_and_probes_run_are_commands_that_there_are(manifests: Manifests) -> None:
    hub, web = manifests.container("hub"), manifests.container("web")
    probes = [hub[name]["exec"]["command"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    for program, name, *words in (*probes, [*web["command"], *web["args"]]):
        assert program == "hubbub"
        command: Any = whole().commands[name]
        command.make_context(name, list(words))  # raises for an option that it does not have
    assert probes[0] == probes[1] == [*probes[2], "--live"]  # what takes no work is not started again for it
    (host,) = web["readinessProbe"]["httpGet"]["httpHeaders"]
    assert host == {"name": "Host", "value": f"localhost:{manifests.ports()['web']}"}


def test_the_user_is_that_of_the_image_and_the_data_directory_is_its_own(manifests: Manifests) -> None:
    user, group = map(int, re.findall(r"^USER (1\d+):(\d+)$", DOCKERFILE, re.MULTILINE)[0])
    given = manifests.pod["securityContext"]
    assert (given["runAsUser"], given["runAsGroup"], given["fsGroup"]) == (user, group, group)
    assert 'ENTRYPOINT ["hubbubd"]' in DOCKERFILE
    assert "command" not in manifests.container("hub")
    for name in ("hub", "web"):
        directory = PurePosixPath(manifests.environment(name)["HUBBUB_DATA_DIR"])
        # The hub refuses a directory of another user, as the top of a volume is.
        assert manifests.mounts(name)[str(directory.parent)] == "state"


def test_every_file_is_on_a_volume_that_is_mounted(manifests: Manifests) -> None:
    text = "\n".join([manifests.settings_text, *manifests.environment("hub").values()])
    volumes = {each["name"] for each in manifests.pod["volumes"]} | {"state"}
    mounted = manifests.mounts("hub")
    assert set(mounted.values()) == volumes
    for path in re.findall(r"/(?:etc|var)/[\w./-]+", text):
        assert any(path.startswith(f"{folder}/") for folder in mounted), path


def test_only_variables_of_the_programs_begin_as_theirs_do(manifests: Manifests) -> None:
    # Kubernetes would add some for the Service `hubbub`, such as HUBBUB_PORT.
    assert manifests.pod["enableServiceLinks"] is False


def test_the_document_makes_every_secret_that_is_wanted(manifests: Manifests) -> None:
    volumes = [each["secret"]["secretName"] for each in manifests.pod["volumes"] if "secret" in each]
    env = [each["valueFrom"] for each in manifests.container("hub")["env"] if "valueFrom" in each]
    keys = [each["secretKeyRef"] for each in env if "secretKeyRef" in each]
    taken = [each["secretRef"]["name"] for each in manifests.container("hub")["envFrom"] if "secretRef" in each]
    made = set(re.findall(r"kubectl create secret \w+ ([\w-]+)", DOCUMENT))
    assert {*volumes, *taken, *(each["name"] for each in keys)} <= made
    assert all(f"{each['key']}=" in DOCUMENT for each in keys)
    assert f"kubectl apply -k docs/deploy/kubernetes/{manifests.variant}\n" in DOCUMENT


def test_the_document_makes_a_certificate_for_each_member() -> None:
    named = DOCUMENT.partition("certs member members ")[2].partition("\n")[0].split()
    assert named == [f"hubbub-{number}" for number in range(Manifests("fleet").workload["replicas"])]


def test_a_member_of_a_drained_node_starts_on_another_one() -> None:
    assert all(each["nodeTaintsPolicy"] == "Honor" for each in Manifests("fleet").pod["topologySpreadConstraints"])
