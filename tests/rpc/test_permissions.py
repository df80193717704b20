"""The table of what each RPC needs, and the same for people."""

import re
from pathlib import Path

from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from hubbubd.core.access import ROLES, Permission, Role
from hubbubd.rpc.auth.permissions import CALLER_METHODS, RULES
from hubbubd.rpc.listeners.grpc_server import SERVICES

DOCUMENT = (Path(__file__).parents[2] / "docs/access.md").read_text()
SERVED = [
    *SERVICES.values(),
    health_pb2.DESCRIPTOR.services_by_name["Health"],
    reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"],
]


def test_every_rpc_has_a_rule_and_every_rule_an_rpc() -> None:
    paths = {f"/{service.full_name}/{method.name}" for service in SERVED for method in service.methods}
    assert set(RULES) == paths


def tight(line: str) -> str:
    """The row of a table without the space of empty cells."""
    return re.sub(r"\|\s*(?=\|)", "| ", line)


def needed(path: str) -> tuple[str, str]:
    """What an RPC needs, and which roles have it, as the first cells of its row."""
    rule = RULES[path]
    marks = ["x" if role in rule.roles or not rule.any_of else "" for role in Role]
    return path.split("/")[1].rpartition(".")[2] + "." + path.split("/")[2], tight(f"| {rule} | {' | '.join(marks)} |")


def test_the_document_says_of_every_rpc_what_it_needs() -> None:
    table = DOCUMENT.partition("## What each RPC needs")[2]
    rows = re.findall(r"^(\|.*\|) ((?:\w+: [\w, ]+(?:; )?)+) \|$", table, re.MULTILINE)
    said = [
        (f"{service}.{method}", cells)
        for cells, services in rows
        for service, _, methods in (each.partition(": ") for each in services.split("; "))
        for method in methods.split(", ")
    ]
    assert sorted(said) == sorted(map(needed, RULES))


def test_the_document_has_every_permission_with_its_roles() -> None:
    for permission in Permission:
        marks = " | ".join("x" if permission in ROLES[role] else "" for role in Role)
        assert tight(f"| `{permission}` | {marks} |") in DOCUMENT


def test_the_document_names_what_callers_may_send() -> None:
    assert all(f"`{method}`" in DOCUMENT for method in CALLER_METHODS)
