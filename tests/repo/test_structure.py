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
FRONTENDS = {"hubbub_cli", "hubbub_agent", "hubbub_notify", "hubbub_tui", "hubbub_web"}
# The commands that are frontends of their own. Each imports its frontend when it is run, so that no other pays for it.
STARTED_BY = {
    "hubbub_cli.commands.agent": "hubbub_agent",
    "hubbub_cli.notices.notify_process": "hubbub_notify",
    "hubbub_cli.notices.rules": "hubbub_notify",
    "hubbub_cli.commands.notify": "hubbub_notify",
    "hubbub_cli.notices.browser_push": "hubbub_notify",
    "hubbub_cli.commands.tui": "hubbub_tui",
    "hubbub_cli.commands.web": "hubbub_web",
}
PARAMETERS = 5

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
DAEMON = {name: path for name, path in MODULES.items() if name.partition(".")[0] == "hubbubd"}
# A folder whose `__init__` gives no names only groups modules.
ROOMS = {
    name
    for name, path in MODULES.items()
    if path.name == "__init__.py" and name.count(".") == 2 and "__all__" in path.read_text()
}


@cache
def imported(path: Path) -> frozenset[str]:
    """Our modules that a file names in imports, those inside functions and for the type checker alone included."""
    return among(ast.walk(tree(path)))


def among(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Our modules that these import."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in MODULES else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(found & MODULES.keys())


def room(module: str) -> str | None:
    return next((each for each in ROOMS if module == each or module.startswith(f"{each}.")), None)


def named(node: ast.AST) -> list[str]:
    """The modules that an import names, ours or not."""
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom(module=str() as module):
            return [module]
        case _:
            return []


def positional(node: ast.ClassDef) -> int:
    """How many arguments in a row make an object of a dataclass; of other classes none."""
    made = next((text for each in node.decorator_list if (text := ast.unparse(each)).startswith("dataclass")), None)
    if made is None or "kw_only=True" in made:
        return 0
    count = 0
    for field in node.body:
        if isinstance(field, ast.AnnAssign):
            of, default = ast.unparse(field.annotation), ast.unparse(field.value) if field.value else ""
            if of == "KW_ONLY":
                break
            count += not (of.startswith("ClassVar") or "init=False" in default or "kw_only=True" in default)
    return count


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


def test_the_library_imports_no_frontend() -> None:
    library = {name: path for name, path in MODULES.items() if name.partition(".")[0] == "hubbub_client"}
    assert len(library) > 20
    assert {
        name: owners for name, path in library.items() if (owners := packages(imported(path))) > {"hubbub_client"}
    } == {}


def test_the_library_needs_grpc_and_protobuf_and_nothing_else() -> None:
    """What else a program has is used where it is there: only OpenTelemetry, and only once the program imported it."""
    allowed = {"grpc", "google.protobuf", "hubbub", "hubbub_client", *sys.stdlib_module_names}
    found = {
        (name, each)
        for name, path in MODULES.items()
        if name.partition(".")[0] == "hubbub_client"
        for node in ast.walk(tree(path))
        for each in named(node)
        if not any(each == known or each.startswith(f"{known}.") for known in allowed)
    }
    assert found == {
        ("hubbub_client.transport.trace_context", f"opentelemetry.{part}") for part in ("trace", "propagate")
    }


def test_a_frontend_imports_no_other_but_the_command_that_starts_it() -> None:
    found = {
        name: others
        for name, path in MODULES.items()
        if (own := name.partition(".")[0]) in FRONTENDS
        if (others := packages(imported(path)) & FRONTENDS - {own})
    }
    assert found == {name: {frontend} for name, frontend in STARTED_BY.items()}


def test_a_command_imports_the_frontend_it_starts_only_when_it_is_run() -> None:
    for name, frontend in STARTED_BY.items():
        path = MODULES[name]
        assert frontend not in packages(among(tree(path).body))


def test_a_constructor_names_its_collaborators() -> None:
    """More than five arguments in a row say nothing of what is what: constructors take more by keyword.

    In the daemon so does every function. Those of the command line are called by Typer, which names what it gives.
    """
    found: dict[str, int] = {}
    for name, path in MODULES.items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (name in DAEMON or node.name == "__init__"):
                given = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
                count = len(given) - (given[:1] in (["self"], ["cls"]))
                if count > PARAMETERS:
                    found[f"{path.relative_to(REPOSITORY)}:{node.lineno} {node.name}"] = count
    assert found == {}


def test_a_dataclass_of_many_fields_takes_them_by_keyword() -> None:
    found: dict[str, int] = {}
    for path in MODULES.values():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and (count := positional(node)) > PARAMETERS:
                found[f"{path.relative_to(REPOSITORY)}:{node.lineno}"] = count
    assert found == {}


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


def test_the_daemon_logs_through_structlog_alone() -> None:
    """What goes through the standard library does not follow `log_level`: only warnings pass its bridge."""
    assert [name for name, path in DAEMON.items() if "getLogger(__name__)" in path.read_text(encoding="utf-8")] == []


def test_nothing_of_a_library_is_replaced() -> None:
    """An assignment to an attribute of an imported module."""
    found: list[str] = []
    for path in DAEMON.values():
        module = tree(path)
        modules = {
            alias.asname or alias.name.partition(".")[0]
            for node in ast.walk(module)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
            if alias.name[0].islower()
        }
        for node in ast.walk(module):
            for target in node.targets if isinstance(node, ast.Assign) else ():
                owner = target.value if isinstance(target, ast.Attribute) else None
                if isinstance(owner, ast.Name) and owner.id in modules:
                    found.append(f"{path.name}: {ast.unparse(target)}")
    assert not found


def test_a_call_over_http_meets_neither_the_transports_of_the_sdk_nor_their_client() -> None:
    """Only what opens a connection, and the flow of OAuth, know the SDK's HTTP client."""
    users = {
        path.name
        for name, path in DAEMON.items()
        for node in ast.walk(tree(path))
        if name.startswith("hubbubd.upstream.")
        if isinstance(node, ast.Import | ast.ImportFrom)
        for named in (getattr(node, "module", None) or "", *(alias.name for alias in node.names))
        if named.startswith(("httpx2", "httpcore2", "mcp.client.streamable_http", "mcp.client.sse"))
    }
    assert users == {"flow.py", "documents.py", "replies.py", "transports.py"}


@pytest.mark.usefixtures("processes")
def test_what_opens_links_imports_an_http_client_with_the_first_server_over_http_only() -> None:
    script = (
        "import sys; from hubbubd.upstream import connector; connector._opening();"
        "print([name for name in ('aiohttp', 'yarl', 'hubbubd.upstream.http.transports') if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert loaded.stdout.strip() == "[]"


@pytest.mark.usefixtures("processes")
def test_what_connects_over_http_imports_neither_servers_of_the_sdk_nor_oauth() -> None:
    script = (
        "import sys; from hubbubd.upstream import connector; connector._opening();"
        "import hubbubd.upstream.http.transports;"
        "names = ('mcp.server', 'mcp.client.client', 'mcp.client.auth', 'starlette', 'uvicorn', 'jwt', 'cryptography');"
        "print([name for name in names if name in sys.modules]);"
        "import mcp; from mcp.client import ClientSession; print(mcp.Client.__name__, ClientSession.__name__)"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert loaded.stdout.splitlines() == ["[]", "Client ClientSession"]


@pytest.mark.usefixtures("processes")
def test_the_daemon_starts_without_what_only_members_of_a_fleet_need() -> None:
    script = (
        "import sys, hubbubd.program.app;"
        "print([name for name in sys.modules if name.startswith(('hubbubd.rpc.fleet', 'hubbub.fleet', 'asyncpg'))])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert loaded.stdout.strip() == "[]"


@pytest.mark.usefixtures("processes")
def test_the_daemon_starts_without_what_only_terminals_and_forms_need() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "hubbubd", "--version"]
    loaded = subprocess.run(command, capture_output=True, check=True, text=True)
    names = {line.rpartition("|")[2].strip() for line in loaded.stderr.splitlines()}
    assert "hubbubd.rpc.listeners.grpc_server" in names
    assert not names & {"rich.console", "pygments", "jsonschema_rs", "mcp", "mcp_types"}
