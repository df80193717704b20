"""What a program imports of the library: the modules that it uses, and none of what only others need."""

import ast
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import hubbub_client


@pytest.mark.usefixtures("processes")
def test_importing_the_library_loads_neither_the_daemon_nor_what_only_a_terminal_needs() -> None:
    heavy = ("mcp", "hubbubd", "aiohttp", "typer", "rich", "pydantic", "anyio", "google.rpc")
    program = f"from hubbub_client import *; import sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("statement", "unneeded"),
    [
        ("import hubbub_client", ("asyncio", "google", "grpc", "hubbub", "hubbub_client.data.records")),
        (
            "from hubbub_client import PendingRequest; from hubbub_shared import legible",
            ("asyncio", "google", "grpc", "hubbub"),
        ),
        (
            "import hubbub_client; hubbub_client.errors.NotFound",
            ("hubbub_client.hub", "hubbub_client.transport.connection"),
        ),
        ("import hubbub_cli.commands.mcp, hubbub_bridge.bridge", ("google", "grpc", "hubbub", "pydantic", "rich")),
        (
            "from hubbub_client import connect",
            ("hubbub_client.services.admin", "hubbub_client.data.specs", "hubbub_client.sync"),
        ),
        ("import hubbub_cli.syntax.completion, hubbub_client.transport.discovery", ("asyncio", "grpc", "google")),
    ],
)
def test_a_module_is_imported_with_the_first_use_of_its_names(statement: str, unneeded: tuple[str, ...]) -> None:
    program = f"{statement}\nimport sys; print([name for name in {unneeded} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_package_has_each_public_name_where_type_checkers_find_it() -> None:
    source = Path(hubbub_client.__file__).read_text()
    imports = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.ImportFrom)]
    typed = {name.name: each.module for each in imports for name in each.names if "hubbub_client" in str(each.module)}
    assert list(hubbub_client.__all__) == sorted(typed)
    assert {*typed} <= {*dir(hubbub_client)}
    for name, module in typed.items():
        assert getattr(hubbub_client, name) is getattr(import_module(str(module)), name)
    everything: dict[str, Any] = {}
    exec("from hubbub_client import *", everything)
    assert {*typed} <= everything.keys()
    assert getattr(hubbub_client, "errors") is sys.modules["hubbub_client.errors"]  # noqa: B009
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        getattr(hubbub_client, "Nothing")  # noqa: B009


def test_records_and_errors_can_be_pickled() -> None:
    fault = hubbub_client.Fault(code="X", category="server", message="m", retryable=False, help_url=None, details=None)
    assert pickle.loads(pickle.dumps(fault)) == fault
    assert pickle.loads(pickle.dumps(hubbub_client.NotFound)) is hubbub_client.NotFound
