"""The structure of the daemon and of its clients: who imports whom, and by which door."""

import ast
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from ..syntax import tree

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = REPOSITORY / "hub"
CLIENTS = REPOSITORY / "clients"

_tracked = subprocess.run(
    ["git", "ls-files", "-z", "hub", "clients"],
    cwd=REPOSITORY,
    capture_output=True,
    check=True,
    text=True,
)
PYTHON = [REPOSITORY / name for name in _tracked.stdout.split("\0") if name.endswith(".py") and "_pb2" not in name]
MODULES = {
    ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
    for root in (PACKAGES, CLIENTS)
    for path in PYTHON
    if path.is_relative_to(root) and path.is_file()
}
# A folder whose `__init__` gives no names only groups modules.
ROOMS = {
    name
    for name, path in MODULES.items()
    if path.name == "__init__.py" and name.count(".") == 2 and "__all__" in path.read_text()
}


@cache
def imported(path: Path) -> frozenset[str]:
    """Our modules that a file names in imports, those inside functions and for the type checker alone included."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in MODULES else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(found & MODULES.keys())


def room(module: str) -> str | None:
    return next((each for each in ROOMS if module == each or module.startswith(f"{each}.")), None)


def packages(modules: Iterable[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def test_no_modules_import_each_other_in_a_circle() -> None:
    try:
        TopologicalSorter({name: imported(path) for name, path in MODULES.items()}).prepare()
    except CycleError as exc:
        raise AssertionError(" -> ".join(exc.args[1])) from None


def test_a_room_is_entered_by_its_front_door() -> None:
    entered = [
        f"{name} imports {each}"
        for name, path in MODULES.items()
        for each in imported(path)
        if room(each) not in (None, each, room(name))
    ]
    assert entered == []


def test_a_class_name_means_one_thing() -> None:
    """The library may have a class for each of the hub's nouns that its users meet too, as `Call` and `Inbox`."""
    where: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(module)
    shared = {name: sorted(modules) for name, modules in where.items() if len(modules) > 1}
    pairs = {
        name
        for name, modules in shared.items()
        if len(modules) == 2 and packages(modules) == {"hubbub_client", "hubbubd"}
    }
    assert {name: modules for name, modules in shared.items() if name not in pairs} == {}


OPENING = "from hubbubd.upstream import connector; connector._import_link_opener()"
LEFT_OUT = {
    "what opens links, without a server over HTTP": (OPENING, ["aiohttp", "yarl", "hubbubd.upstream.http.transports"]),
    "what connects over HTTP": (
        f"{OPENING}; import hubbubd.upstream.http.transports",
        ["mcp.server", "mcp.client.client", "mcp.client.auth", "starlette", "uvicorn", "jwt", "cryptography"],
    ),
    "an endpoint at which nobody has logged in": (
        "import hubbubd.rpc.mcp.application",
        ["hubbubd.rpc.login.routes", "hubbubd.rpc.login.pages", "hubbubd.rpc.login.person", "hubbubd.upstream.http"],
    ),
    "a daemon outside of a fleet": ("import hubbubd.program.app", ["hubbubd.rpc.fleet", "hubbub.fleet", "asyncpg"]),
}


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(("statement", "absent"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_a_process_imports_only_what_it_needs(statement: str, absent: list[str]) -> None:
    script = f"import sys; {statement}; print([name for name in sys.modules if name.startswith({tuple(absent)})])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert loaded.stdout.strip() == "[]"


@pytest.mark.usefixtures("processes")
def test_the_daemon_starts_without_what_only_terminals_and_forms_need() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "hubbubd", "--version"]
    loaded = subprocess.run(command, capture_output=True, check=True, text=True)
    names = {line.rpartition("|")[2].strip() for line in loaded.stderr.splitlines()}
    assert "hubbubd.rpc.listeners.grpc_server" in names
    assert not names & {"rich.console", "pygments", "jsonschema_rs", "mcp", "mcp_types"}
