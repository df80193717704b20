"""The manifests for Kubernetes: rendered, valid, confined, of one piece; and the containers of a pod as processes."""

import json
import os
import re
import shutil
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from subprocess import PIPE, CompletedProcess
from typing import Any

import anyio
import httpx2
import pytest
import yaml
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from hubbub_frontend.certs import Authority

from ..e2e.conftest import child, environment
from ..kubernetes import FOLDER, POD, ROOT, VARIANTS, Manifests, map_paths
from ..ports import reserved
from ..postgres import Postgres
from .conftest import LIMIT_S, installed, ran

PORTS = (7878, 7879, 7880, 7881)
DOCUMENT = (ROOT / "docs/kubernetes.md").read_text()
VALIDATE = """
import sys, yaml
from kubernetes_validate.utils import latest_version, validate
documents = list(yaml.safe_load_all(open(sys.argv[1])))
for version in (sys.argv[2], latest_version()):
    for document in documents:
        validate(document, version, strict=True)
print(version.rpartition(".")[0])
"""
"""The oldest version and the newest: what both take, those between them take."""


@cache
def render(kubectl: str, variant: str) -> str:
    return ran(kubectl, "kustomize", FOLDER / variant)


@pytest.fixture(params=VARIANTS)
def manifests(request: pytest.FixtureRequest) -> Manifests:
    return Manifests(request.param)


@pytest.fixture
def documents(manifests: Manifests, tool: Callable[[str], str]) -> list[dict[str, Any]]:
    """What `kubectl apply -k` sends."""
    return list(yaml.safe_load_all(render(tool("kubectl"), manifests.variant)))


def of_kind(documents: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in documents if each["kind"] == kind}


def test_the_oldest_and_the_newest_version_that_the_document_names_take_them(
    documents: list[dict[str, Any]], schemas: Path, tmp_path: Path
) -> None:
    (named,) = re.findall(r"Kubernetes (\d\.\d+) to (\d\.\d+)", DOCUMENT)
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    assert ran(schemas, "-c", VALIDATE, file, named[0]).strip() == named[1]


def test_what_the_quick_tests_read_is_what_is_sent(documents: list[dict[str, Any]], manifests: Manifests) -> None:
    (sent,) = of_kind(documents, "StatefulSet").values()
    for ours, theirs in zip(manifests.pod["containers"], sent["spec"]["template"]["spec"]["containers"], strict=True):
        environments = ours.pop("envFrom", None), theirs.pop("envFrom", None)
        assert {**theirs, "image": ours["image"]} == ours
        assert (environments[0] is None) == (environments[1] is None)


def test_a_pod_has_no_more_rights_than_it_needs(documents: list[dict[str, Any]]) -> None:
    """What the standard `restricted` of Kubernetes asks for, and a file system that cannot be written."""
    (workload,) = of_kind(documents, "StatefulSet").values()
    pod = workload["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostAliases"} & set(pod)
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert all({"configMap", "secret", "emptyDir"} & set(volume) for volume in pod["volumes"])
    for each in pod["containers"]:
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(each["resources"]) == {"requests", "limits"}
        assert all("hostPort" not in port for port in each["ports"])
        assert [mount["name"] for mount in each["volumeMounts"] if not mount.get("readOnly")] in (
            ["state", "temporary"],
            ["temporary"],
        )


def test_all_that_is_named_is_there(documents: list[dict[str, Any]]) -> None:
    (workload,) = of_kind(documents, "StatefulSet").values()
    labels = workload["spec"]["template"]["metadata"]["labels"]
    pod = workload["spec"]["template"]["spec"]
    maps = of_kind(documents, "ConfigMap")
    taken = [
        each["configMapRef"]["name"]
        for one in pod["containers"]
        for each in one.get("envFrom", ())
        if "configMapRef" in each
    ]
    assert {*taken, *(each["configMap"]["name"] for each in pod["volumes"] if "configMap" in each)} == set(maps)
    assert list(maps["hubbub"]["data"]) == ["hubbub.toml"]
    assert workload["spec"]["serviceName"] in of_kind(documents, "Service")
    selectors = [workload["spec"]["selector"]["matchLabels"]]
    selectors += [each["spec"]["podSelector"]["matchLabels"] for each in of_kind(documents, "NetworkPolicy").values()]
    selectors += [
        each["spec"]["selector"]["matchLabels"] for each in of_kind(documents, "PodDisruptionBudget").values()
    ]
    selectors += [each["labelSelector"]["matchLabels"] for each in pod.get("topologySpreadConstraints", ())]
    of_set = {"statefulset.kubernetes.io/pod-name": "hubbub-0"}
    selectors += [each["spec"]["selector"] for each in of_kind(documents, "Service").values()]
    assert all(selector.items() <= {**labels, **of_set}.items() and selector for selector in selectors)


def test_one_member_may_be_taken_at_a_time_and_a_single_hub_at_any_time(documents: list[dict[str, Any]]) -> None:
    (workload,) = of_kind(documents, "StatefulSet").values()
    budgets = [each["spec"]["maxUnavailable"] for each in of_kind(documents, "PodDisruptionBudget").values()]
    # One for a single hub would keep its node from being drained for ever.
    assert budgets == ([1] if workload["spec"]["replicas"] > 1 else [])


def test_the_commands_of_the_document_make_every_secret_with_every_key(
    tool: Callable[[str], str], tmp_path: Path
) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL)
    lines = "".join(blocks).replace("\\\n", "").splitlines()
    typed = [line for line in lines if line.startswith(("hubbub certs ", "mv ", "kubectl create "))]
    assert len(typed) == len(lines) - 5  # the rest needs a cluster
    kubectl = f'kubectl() {{ "{tool("kubectl")}" "$@" --dry-run=client --output=yaml && echo ---; }}'
    env = environment() | {"PATH": f"{installed('hubbub').parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    shell = ("sh", "-euc", "\n".join([kubectl, *typed]))
    done = ran(*shell, cwd=tmp_path, env=env)
    texts = [part[part.find("apiVersion: v1\n") :] for part in done.split("\n---\n") if "apiVersion: v1\n" in part]
    made = {each["metadata"]["name"]: set(each["data"]) for each in map(yaml.safe_load, texts)}
    for variant in VARIANTS:
        manifests = Manifests(variant)
        for each in manifests.container("hub")["env"]:
            if key := each.get("valueFrom", {}).get("secretKeyRef"):
                assert key["key"] in made[key["name"]]
        secrets = {each["name"]: each["secret"]["secretName"] for each in manifests.pod["volumes"] if "secret" in each}
        text = "\n".join([manifests.settings_text, *manifests.environment("hub").values()])
        for path, volume in manifests.mounts("hub").items():
            if volume in secrets:
                files = set(re.findall(rf"{path}/([\w.-]+)", text))
                assert files
                assert files <= made[secrets[volume]]


@dataclass(frozen=True)
class Machine:
    """A volume as a pod gets it, whose top belongs to root and the group of the pod, and the pod's paths here."""

    manifests: Manifests
    top: Path
    paths: Mapping[str, Path]
    ports: Mapping[int, int]

    def map(self, text: str) -> str:
        """Text of a pod, with paths and ports of this machine."""
        text = map_paths(text, self.paths)
        for ours, theirs in self.ports.items():
            text = re.sub(rf":{ours}\b", f":{theirs}", text)
        return text

    def words(self, *words: str) -> list[str]:
        """A command of a container, by its user."""
        user = self.manifests.pod["securityContext"]
        ids = [f"--reuid={user['runAsUser']}", f"--regid={user['runAsGroup']}", "--clear-groups", "--inh-caps=-all"]
        as_user = ["setpriv", *ids, "--no-new-privs"] if os.geteuid() == 0 else []
        return [*as_user, str(installed(words[0])), *map(self.map, words[1:])]

    def environment(self, container: str) -> dict[str, str]:
        """The variables of a container, with what its image adds."""
        given = {name: self.map(value) for name, value in self.manifests.environment(container).items()}
        ours = {"HUBBUBD_STORE__SCHEMA_NAME": self.top.name.replace("-", "_").lower()}
        return environment() | given | ours | {"HOME": str(self.paths["/var/lib/hubbub"]), "PYTHONUNBUFFERED": "1"}

    def fill(self, database: str) -> None:
        """Make what the pod finds on its volumes."""
        for path in (self.top, *self.paths.values()):
            path.mkdir(exist_ok=True)
            path.chmod(0o755)
        self.paths["/var/lib/hubbub"].chmod(0o2775)
        authority = Authority.open(self.top / "authority")
        server, member = authority.issue_server(["hubbub"]), authority.issue_member(POD)
        named = {"/etc/hubbub-tls": {"tls.crt": server.cert, "tls.key": server.key}}
        named["/etc/hubbub-members"] = {file.name: file for file in (authority.file, member.cert, member.key)}
        for path, files in named.items():
            for name, file in files.items() if path in self.paths else ():
                shutil.copy(file, self.paths[path] / name)
                (self.paths[path] / name).chmod(0o440)
        text = re.sub(r'^url = ".*"', f'url = "{database}"', self.map(self.manifests.settings_text), flags=re.MULTILINE)
        (self.paths["/etc/hubbub"] / "hubbub.toml").write_text(text)
        if os.geteuid() == 0:
            for path in (self.top, *self.top.rglob("*")):
                os.chown(path, 0, self.manifests.pod["securityContext"]["fsGroup"])


@pytest.fixture
def machine(manifests: Manifests, postgres: Postgres) -> Iterator[Machine]:
    """For the only member of a fleet, too."""
    top = Path(tempfile.mkdtemp(prefix="hubbub-pod-"))
    paths = {path: top / name for path, name in manifests.mounts("hub").items() if path != "/tmp"}
    with ExitStack() as held:
        held.callback(shutil.rmtree, top)
        machine = Machine(manifests, top, paths, {port: held.enter_context(reserved()) for port in PORTS})
        machine.fill(postgres.url)
        yield machine


async def first_line(process: Process) -> bytes:
    assert process.stdout is not None
    with anyio.fail_after(LIMIT_S):
        return await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 1 << 16)


async def execute(machine: Machine, *command: str) -> CompletedProcess[bytes]:
    """As `kubectl exec`, and as a probe."""
    with anyio.fail_after(LIMIT_S):
        return await anyio.run_process(machine.words(*command), check=False, env=machine.environment("hub"))


async def probe(machine: Machine, name: str) -> bool:
    return not (await execute(machine, *machine.manifests.container("hub")[name]["exec"]["command"])).returncode


async def test_the_hub_of_a_pod_works_is_probed_shows_its_page_and_ends_in_time(machine: Machine) -> None:
    manifests = machine.manifests
    hub, web = manifests.container("hub"), manifests.container("web")
    assert not await probe(machine, "livenessProbe")
    async with child(machine.words("hubbubd", *hub["args"]), stdout=PIPE, env=machine.environment("hub")) as process:
        ready = json.loads(await first_line(process))
        assert ready["mcp"].startswith("https://")
        assert all([await probe(machine, name) for name in ("startupProbe", "livenessProbe", "readinessProbe")])
        if manifests.variant == "fleet":
            status = await execute(machine, "hubbub", "--json", "fleet", "status")
            assert machine.map(f"{POD}.hubbub-members:7878").encode() in status.stdout
        command = machine.words(*web["command"], *web["args"])
        async with child(command, stdout=PIPE, env=machine.environment("web")) as page:
            assert b"https://hubbub:" in await first_line(page)
            asked = web["readinessProbe"]["httpGet"]
            trust = ssl.create_default_context(cafile=str(machine.top / "authority/ca.pem"))
            async with httpx2.AsyncClient(verify=trust, trust_env=False, timeout=LIMIT_S) as http:
                headers = {each["name"]: each["value"] for each in asked["httpHeaders"]}
                url = f"{asked['scheme'].lower()}://127.0.0.1:{machine.ports[manifests.ports()['web']]}{asked['path']}"
                assert (await http.get(url, headers=headers)).status_code == 200
            page.terminate()
        process.terminate()
        with anyio.fail_after(manifests.pod["terminationGracePeriodSeconds"]):
            assert await process.wait() == 0
    assert not await probe(machine, "livenessProbe")
