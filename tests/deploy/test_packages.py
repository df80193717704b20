"""The distributions, built and installed in environments that have nothing else."""

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from email import message_from_string
from email.message import Message
from pathlib import Path
from subprocess import PIPE
from typing import Any
from zipfile import ZipFile

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

import hubbub_client

from ..e2e.conftest import RunningHub, child, environment, toml
from ..once import make_once
from .conftest import LIMIT_S, ROOT, installed
from .distributions import SURROUNDINGS, copy

INSTALL_LIMIT_S = 600
EXTRAS = ("conditions", "connect", "fleet", "postgres", "telemetry")
OF_CONTRIBUTORS = {"dev", "docs"}
# `pipx install .` takes pip's time, and is the first step of first_contact.py.
UV_LINES = re.findall(r"^uvx? .+$", (ROOT / "docs/install.md").read_text(), re.MULTILINE)
EXAMPLE = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**environment(), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=INSTALL_LIMIT_S,
    )


@dataclass(frozen=True)
class Environment:
    """One that has some wheels installed, and what these need: no pip."""

    path: Path

    @classmethod
    def of(cls, path: Path, *wheels: Path) -> "Environment":
        venv.create(path)
        made = cls(path)
        made._uv("install", "--quiet", "--constraint", ROOT / "constraints.txt", *wheels)
        return made

    def program(self, name: str) -> Path:
        return self.path / "bin" / name

    def packages(self) -> set[str]:
        listed = json.loads(self._uv("list", "--quiet", "--format", "json"))
        return {each["name"].lower().replace("_", "-") for each in listed}

    def _uv(self, verb: str, *words: str | Path) -> str:
        """What `uv pip` prints, which needs an eighth of pip's processor time; first_contact.py installs with pip."""
        done = run(installed("uv"), "pip", verb, "--python", self.program("python"), *words)
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The wheel of each distribution, by its name."""

    def build(directory: Path) -> None:
        for project in (ROOT, ROOT / "clients/library"):
            built = run(installed("hatchling"), "build", "--target", "wheel", "--directory", directory, cwd=project)
            assert built.returncode == 0, built.stdout

    directory = make_once(tmp_path_factory, "wheels", build)
    found = {path.name.partition("-")[0].replace("_", "-"): path for path in directory.glob("*.whl")}
    assert found.keys() == {"hubbub", "hubbub-client"}
    return found


@pytest.fixture(scope="session")
def library(wheels: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return installed_once("library", wheels["hubbub-client"], tmp_path_factory)


@pytest.fixture(scope="session")
def product(wheels: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return installed_once("product", wheels["hubbub"], tmp_path_factory)


def installed_once(name: str, wheel: Path, factory: pytest.TempPathFactory) -> Environment:
    """An environment that all workers share."""
    return Environment(make_once(factory, f"{name}-environment", lambda path: Environment.of(path, wheel)))


@pytest.fixture
async def hub(product: Environment, mcp1_python: str, tmp_path: Path) -> AsyncIterator[RunningHub]:
    """The installed `hubbubd`, with the server of the README's example."""
    time = {"command": mcp1_python, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]}
    config = tmp_path / "hub.toml"
    config.write_text(toml({"servers": {"time": time}}))
    words = ["--config", str(config), "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(child([str(product.program("hubbubd")), *words], stdout=PIPE))
        assert process.stdout is not None
        with anyio.fail_after(LIMIT_S):
            ready: dict[str, Any] = json.loads(
                await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 1 << 16)
            )
        client = await stack.enter_async_context(hubbub_client.connect(data_dir=ready["data_dir"]))
        running = RunningHub(process, ready, client, stack)
        await running.connected("time")
        yield running
        await running.terminate()


def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


def test_the_library_brings_grpcio_and_protobuf_and_what_these_need(library: Environment) -> None:
    assert library.packages() == {"hubbub-client", "grpcio", "protobuf", "typing-extensions"}


def contents(wheel: Path) -> dict[str, int]:
    """The files of the packages in a wheel, with their checksums."""
    return {each.filename: each.CRC for each in ZipFile(wheel).infolist() if ".dist-info/" not in each.filename}


def test_the_library_alone_is_what_the_product_has_of_it(wheels: Mapping[str, Path]) -> None:
    alone, product = contents(wheels["hubbub-client"]), contents(wheels["hubbub"])
    assert {name: product.get(name) for name in alone} == alone
    assert {name.partition("/")[0] for name in alone} == {"hubbub", "hubbub_client", "hubbub_shared"}
    folders = (path.name for room in ("clients", "hub") for path in (ROOT / room).glob("hubbub*"))
    assert {name.partition("/")[0] for name in product} == {*folders, "hubbub"}


def test_what_is_between_members_of_a_fleet_comes_with_the_hub_alone(wheels: Mapping[str, Path]) -> None:
    of_api = {
        name: {Path(file).parts[1] for file in contents(wheel) if file.startswith("hubbub/")}
        for name, wheel in wheels.items()
    }
    own = {"__init__.py", "py.typed", "v1"}
    assert of_api == {"hubbub-client": own, "hubbub": {*own, "fleet"}}


def test_no_file_of_a_package_is_left_out(wheels: Mapping[str, Path]) -> None:
    roots = ("hub", "clients", "protos")
    listed = subprocess.run(["git", "ls-files", "-z", *roots], cwd=ROOT, capture_output=True, check=True, text=True)
    below = [Path(*Path(name).parts[1:]) for name in listed.stdout.split("\0") if name]
    of_packages = {str(path) for path in below if path.parts[0].startswith("hubbub") and len(path.parts) > 1}
    assert of_packages - {name for wheel in wheels.values() for name in ZipFile(wheel).namelist()} == set()


def test_the_texts_about_errors_are_in_the_wheel_and_the_installed_command_shows_them(
    wheels: Mapping[str, Path], product: Environment, tmp_path: Path
) -> None:
    assert "hubbub_frontend/errors.toml" in ZipFile(wheels["hubbub"]).namelist()
    shown = run(product.program("hubbub"), "explain", "server-not-found", cwd=tmp_path)
    assert shown.stdout.startswith("# SERVER_NOT_FOUND\n"), shown.stdout


def test_the_product_needs_nothing_that_no_index_has(wheels: Mapping[str, Path]) -> None:
    for wheel in wheels.values():
        assert not [each for each in metadata(wheel).get_all("Requires-Dist", []) if each.startswith("hubbub")]
    library, product = metadata(wheels["hubbub-client"]), metadata(wheels["hubbub"])
    assert library["Version"] == product["Version"]


def test_the_extra_all_is_every_extra_but_that_of_contributors(wheels: Mapping[str, Path]) -> None:
    product = metadata(wheels["hubbub"])
    assert set(product.get_all("Provides-Extra", [])) == {*EXTRAS, "all", *OF_CONTRIBUTORS}
    needs = {
        extra: {each.partition(";")[0] for each in product.get_all("Requires-Dist", []) if f"'{extra}'" in each}
        for extra in (*EXTRAS, "all")
    }
    assert needs["all"] == set().union(*(needs[extra] for extra in EXTRAS))


@pytest.mark.parametrize("of", ["library", "product"])
async def test_the_first_example_of_the_readme_runs(
    of: str, hub: RunningHub, library: Environment, product: Environment
) -> None:
    assert EXAMPLE is not None
    python = {"library": library, "product": product}[of].program("python")
    with anyio.fail_after(LIMIT_S):
        ran = await anyio.run_process(
            [str(python), "-c", EXAMPLE[1]],
            cwd=hub.data_dir,
            env={**environment(), "HUBBUB_DATA_DIR": str(hub.data_dir)},
            check=False,
        )
    assert ran.returncode == 0, ran.stderr.decode()
    assert json.loads(ran.stdout)["timezone"] == "UTC"


async def test_the_installed_command_calls(hub: RunningHub, product: Environment) -> None:
    words = ["--data-dir", str(hub.data_dir), "--json", "call", "time", "get_current_time", '{"timezone": "UTC"}']
    with anyio.fail_after(LIMIT_S):
        ran = await anyio.run_process([str(product.program("hubbub")), *words], env=environment(), check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    assert "isError" in json.loads(ran.stdout)


def test_the_installed_commands_are_enough_in_an_empty_home(product: Environment, tmp_path: Path) -> None:
    """As `pipx` and `uv tool` install them: a folder of programs, and nothing else of Python's on PATH."""
    home = tmp_path / "home"
    home.mkdir()
    path = os.pathsep.join([str(product.path / "bin"), "/usr/bin", "/bin"])
    env = {"HOME": str(home), "PATH": path, "HUBBUBD_LISTEN": "127.0.0.1:0"}

    def hubbub(*words: str) -> str:
        done = subprocess.run(
            [product.program("hubbub"), *words], cwd=home, env=env, capture_output=True, text=True, timeout=3 * LIMIT_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert hubbub("--version").startswith("hubbub ")
    assert str(home / ".config/hubbub/hubbub.toml") in hubbub("up", "-d")
    try:
        assert "serving at 127.0.0.1:" in hubbub("status")
    finally:
        assert "The hub has ended" in hubbub("down")


@pytest.mark.parametrize("line", UV_LINES)
def test_a_documented_line_installs_the_commands(line: str, tmp_path: Path) -> None:
    """In an empty home, and a clone of the repository."""
    folder, home = tmp_path / "clone", tmp_path / "home"
    home.mkdir()
    copy(folder, SURROUNDINGS[0])
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])
    places = {"HOME": str(home), "PATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = run("bash", "-c", line, cwd=folder, **places)
    assert done.returncode == 0, done.stdout
    if line.startswith("uvx "):
        assert "Usage: hubbub COMMAND" in done.stdout
        return
    for name in ("hubbub", "hubbubd"):
        said = run(home / ".local/bin" / name, "--version", cwd=home, **places)
        assert said.stdout.startswith(f"{name} ")


def test_the_metadata_says_what_runs_it_and_leaves_the_licence_to_the_owner(wheels: Mapping[str, Path]) -> None:
    for wheel in wheels.values():
        found = metadata(wheel)
        said = set(found.get_all("Classifier", []))
        assert {"Programming Language :: Python :: 3.11", "Operating System :: POSIX :: Linux"} <= said
        assert not any(each.startswith("License") for each in said)
        assert found["License"] is None
        assert found["License-Expression"] is None


@pytest.mark.parametrize(
    ("package", "variables"),
    [
        ("cel-expr-python", {"HUBBUBD_APPROVALS__RULES": '[{"when": "args.sum > 5"}]'}),
        ("connectrpc", {"HUBBUBD_CONNECT_LISTEN": "127.0.0.1:0"}),
        ("opentelemetry-sdk", {"HUBBUBD_METRICS_LISTEN": "127.0.0.1:0"}),
        ("asyncpg", {"HUBBUBD_STORE__URL": "postgresql://hubbub@localhost/hubbub"}),
    ],
)
def test_what_needs_an_extra_says_which_command_adds_it(
    package: str, variables: dict[str, str], product: Environment, tmp_path: Path
) -> None:
    ran = run(product.program("hubbubd"), cwd=tmp_path, HUBBUBD_DATA_DIR=str(tmp_path), **variables)
    assert ran.returncode != 0
    assert f"uv pip install --python {product.program('python')} " in ran.stdout
    assert package in ran.stdout


def test_an_installation_for_development_has_the_library_from_the_repository(tmp_path: Path) -> None:
    """`pip install -e .` needs no distribution that is published nowhere yet."""
    script = "import sys, hatchling.build as build; print(build.build_editable(sys.argv[1]))"
    built = run(sys.executable, "-c", script, tmp_path, PIP_BUILD_TRACKER=os.devnull)
    assert built.returncode == 0, built.stdout
    wheel = tmp_path / built.stdout.split()[-1]
    assert not any("hubbub-client" in each for each in metadata(wheel).get_all("Requires-Dist", []))
    with ZipFile(wheel) as archive:
        (roots,) = (archive.read(name).decode().split() for name in archive.namelist() if name.endswith(".pth"))
    assert {str(ROOT / each) for each in ("hub", "clients", "protos")} == set(roots)
