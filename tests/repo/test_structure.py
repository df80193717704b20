"""The structure of the daemon: who imports whom, and by which door."""

import ast
import subprocess
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = REPOSITORY / "hub"
PARAMETERS = 5

_tracked = subprocess.run(
    ["git", "ls-files", "-z", "hub"],
    cwd=REPOSITORY,
    capture_output=True,
    check=True,
    text=True,
)
PYTHON = [REPOSITORY / name for name in _tracked.stdout.split("\0") if name.endswith(".py") and "_pb2" not in name]
MODULES = {
    ".".join(path.relative_to(PACKAGES).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PYTHON
    if path.is_relative_to(PACKAGES) and path.is_file()
}
ROOMS = {name for name, path in MODULES.items() if path.name == "__init__.py" and name.count(".") == 2}


def imported(path: Path) -> set[str]:
    """The modules of the daemon that a file names in imports, those for the type checker alone included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in MODULES else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & MODULES.keys()


def room(module: str) -> str | None:
    return next((each for each in ROOMS if module == each or module.startswith(f"{each}.")), None)


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


def test_a_constructor_names_its_collaborators() -> None:
    """More than five arguments in a row say nothing of what is what: such constructors take them by keyword."""
    found: dict[str, int] = {}
    for path in MODULES.values():
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                count = len(node.args.posonlyargs) + len(node.args.args) - 1
                if count > PARAMETERS:
                    found[f"{path.relative_to(REPOSITORY)}:{node.lineno}"] = count
    assert found == {}


def test_the_daemon_logs_through_structlog_alone() -> None:
    """What goes through the standard library does not follow `log_level`: only warnings pass its bridge."""
    assert [name for name, path in MODULES.items() if "getLogger(__name__)" in path.read_text(encoding="utf-8")] == []
