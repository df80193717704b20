"""What docs/deploy/kubernetes says, without the programs of Kubernetes: documents, and the pods that come of them."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import yaml

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/deploy/kubernetes"
VARIANTS = ("hub", "fleet")
POD = "hubbub-1"
MADE_UP = {"PGPASSWORD": "a password", "HUBBUBD_VAULT_KEY": base64.b64encode(bytes(32)).decode()}
"""Values of Secrets."""


def read_documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text()))


def merge(base: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A strategic merge, as of kubectl: mappings by their keys, lists of mappings by their names, new ones first."""
    merged = dict(base)
    for key, value in patch.items():
        old: Any = base.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            merged[key] = merge(cast("dict[str, Any]", old), cast("dict[str, Any]", value))
        elif isinstance(value, list) and isinstance(old, list):
            merged[key] = _merge_lists(cast("list[Any]", old), cast("list[Any]", value))
        else:
            merged[key] = value
    return merged


def _merge_lists(base: list[Any], patch: list[Any]) -> list[Any]:
    if not all(isinstance(each, dict) and "name" in each for each in (*base, *patch)):
        return patch
    named: dict[str, dict[str, Any]] = {each["name"]: each for each in base}
    new = [merge(named.pop(each["name"], {}), each) for each in patch]
    return [*new, *named.values()]


@dataclass(frozen=True)
class Manifests:
    """One of VARIANTS, as it is applied, but for labels and names of versions."""

    variant: str

    @cached_property
    def documents(self) -> list[dict[str, Any]]:
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for folder in (FOLDER / "base", FOLDER / self.variant):
            kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
            files = [each for each in kustomization["resources"] if each.endswith(".yaml")]
            for name in (*files, *(each["path"] for each in kustomization.get("patches", ()))):
                for document in read_documents(folder / name):
                    key = document["kind"], document["metadata"]["name"]
                    found[key] = merge(found.get(key, {}), document)
        return list(found.values())

    @property
    def settings_text(self) -> str:
        """The configuration file of the hub."""
        return (FOLDER / self.variant / "hubbub.toml").read_text()

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.documents if each["kind"] == kind]

    @property
    def workload(self) -> dict[str, Any]:
        """What the StatefulSet is to be."""
        (found,) = self.of_kind("StatefulSet")
        return found["spec"]

    @property
    def pod(self) -> dict[str, Any]:
        return self.workload["template"]["spec"]

    def container(self, name: str) -> dict[str, Any]:
        (found,) = [each for each in self.pod["containers"] if each["name"] == name]
        return found

    def mounts(self, name: str) -> dict[str, str]:
        """The volume at each path of a container."""
        return {each["mountPath"]: each["name"] for each in self.container(name)["volumeMounts"]}

    def ports(self) -> dict[str, int]:
        """The ports of the pod, by their names."""
        ports = [port for each in self.pod["containers"] for port in each["ports"]]
        assert len({port["containerPort"] for port in ports}) == len(ports)
        return {port["name"]: port["containerPort"] for port in ports}

    def environment(self, name: str) -> dict[str, str]:
        """The variables of a container of POD."""
        found: dict[str, str] = {}
        for each in self.container(name)["env"]:
            value = each["value"] if "value" in each else _from_elsewhere(each["valueFrom"])
            for known, text in found.items():  # only those before it
                value = value.replace(f"$({known})", text)
            assert "$(" not in value, each
            found[each["name"]] = value
        file = FOLDER / "base/environment.env"
        lines = [line.partition("=") for line in file.read_text().splitlines() if not line.startswith("#")]
        return {name: value for name, _, value in lines} | found


def _from_elsewhere(source: Mapping[str, Any]) -> str:
    if "fieldRef" in source:
        assert source["fieldRef"] == {"fieldPath": "metadata.name"}
        return POD
    return MADE_UP[source["secretKeyRef"]["key"]]


def map_paths(text: str, mapped: Mapping[str, Path]) -> str:
    """Text of a container with paths of this machine; of two that begin alike, the longer one counts."""
    for path in sorted(mapped, key=len, reverse=True):
        text = text.replace(path, str(mapped[path]))
    return text
