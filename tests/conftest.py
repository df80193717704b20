"""What every test shares."""

import asyncio
import gc
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn.server
from hypothesis import settings

from . import home

# isort: split
from . import forks  # after `home`: its server keeps the environment that it begins with
from .idle_time import IdleTimeLoop
from .once import make_once, run_directory
from .ports import reserved
from .postgres import postgres
from .tiers import pytest_collection_modifyitems, pytest_runtest_call, pytest_runtest_setup

__all__ = ["home", "postgres", "pytest_collection_modifyitems", "pytest_runtest_call", "pytest_runtest_setup"]

# Examples are not timed: the machine may be busy. HYPOTHESIS_PROFILE: quick tries a fifth of them, nightly a hundred
# times as many.
settings.register_profile("normal", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=settings().max_examples // 5)
settings.register_profile("nightly", deadline=None, max_examples=100 * settings().max_examples)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "normal"))

REPOSITORY = Path(__file__).resolve().parents[1]
ALLOCATIONS = 50_000
"""How many more objects than were freed there are before the collector looks: of Python itself, 700."""

START_LIMIT_S = 60
STOP_LIMIT_S = 5


class _Sooner:
    """The asyncio of uvicorn, whose server looks ten times a second whether it is to end, and whether it has ended.

    A test has servers of its own, and would wait for the end of each: here it looks fifty times as often.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, delay_s: float) -> None:
        idle = isinstance(asyncio.get_running_loop(), IdleTimeLoop)
        await asyncio.sleep(delay_s if idle else delay_s / 50)


uvicorn.server.asyncio = _Sooner()  # type: ignore[assignment]


gc.disable()


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the collector need not look at it, now or later."""
    gc.freeze()
    gc.set_threshold(ALLOCATIONS)
    gc.enable()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Plain asyncio; it also keeps the anyio plugin from running each test on every backend."""
    return "asyncio"


@pytest.fixture(autouse=True)
def environment_left_alone() -> Iterator[None]:
    """A test that leaves variables behind fails: the next one of its process would begin with them."""
    before = _variables()
    yield
    assert _variables() == before


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


@pytest.fixture(scope="session")
def processes() -> None:
    """For a test that starts processes by itself; it is not one of `make quick`."""


@pytest.fixture(scope="module")
def started_for_real() -> Iterator[None]:
    """Each process is started as a user starts it, and none is forked: for tests of the start itself."""
    forks.REAL.wanted = True
    yield
    forks.REAL.wanted = False


@pytest.fixture(scope="session")
def peer_scripts() -> Path:
    """The directory of the servers that the tests bring along."""
    return REPOSITORY / "tests" / "peers"


@pytest.fixture(scope="session")
def mcp1_python() -> str:
    """A Python with the first generation of the MCP SDK and published servers."""
    return str(_installed("mcp1/bin/python"))


@pytest.fixture(scope="session")
def hosts_python() -> str:
    """A Python with FastMCP and with agents that are MCP hosts."""
    return str(_installed("hosts/bin/python"))


@pytest.fixture(scope="session")
def npm_hosts() -> Path:
    """Where MCP clients from npm and a node for them are."""
    return _installed("npm-hosts/node").parent


@pytest.fixture(scope="session")
def npm_apps() -> Path:
    """Where the official host code of MCP Apps, servers with apps and a node for them are."""
    return _installed("apps/node").parent


@pytest.fixture(scope="session")
def installed_typescript() -> Path:
    """Where the TypeScript example's packages, its generated code and a node for them are."""
    return _installed("typescript/node").parent


@pytest.fixture(scope="session")
def go_library() -> Path:
    """Where Debian has the sources that generated Go imports; `make go-tools` installs them."""
    library = Path("/usr/share/gocode")
    missing = [tool for tool in ("go", "protoc-gen-go", "protoc-gen-go-grpc") if shutil.which(tool) is None]
    missing += [name for name in ("protobuf", "grpc") if not (library / "src/google.golang.org" / name).is_dir()]
    # gRPC works with what is generated only where it has the newer one of Debian's two.
    buffers = library / "src/github.com/golang/protobuf/proto/buffer.go"
    missing += [] if buffers.is_file() else ["github.com/golang/protobuf 1.4 or newer"]
    if missing:
        pytest.skip(f"not installed, so nobody knows whether what is generated for Go compiles: {', '.join(missing)}")
    return library


@pytest.fixture(scope="session")
def go_offline(go_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], dict[str, str]]:
    """The variables with which `go build` finds those sources, and a program's own below a directory.

    What is compiled is kept for all tests of a run, in whichever worker. gRPC alone takes 25 s of processor time: the
    first worker compiles it, and another one waits rather than to compile it, too.
    """

    def variables(directory: Path) -> dict[str, str]:
        return {
            "GO111MODULE": "off",
            "GOPATH": f"{directory}{os.pathsep}{go_library}",
            "GOCACHE": str(run_directory(tmp_path_factory) / "go-cache"),
        }

    def compile_grpc(cache: Path) -> None:
        subprocess.run(["go", "build", "google.golang.org/grpc"], env=os.environ | variables(cache), check=True)

    make_once(tmp_path_factory, "go-cache", compile_grpc)
    return variables


@pytest.fixture(scope="session")
def everything_command() -> list[str]:
    """How to start the reference server; add `stdio` or `streamableHttp` (which reads PORT)."""
    script = "node/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
    return [str(_installed("node/node")), str(_installed(script))]


@pytest.fixture(scope="session")
def conformance_command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """How to start the public conformance suite. What Node compiles of it is kept for all its scenarios."""
    script = "node/node_modules/@modelcontextprotocol/conformance/dist/index.js"
    kept = f"NODE_COMPILE_CACHE={run_directory(tmp_path_factory) / 'node-cache'}"
    return ["/usr/bin/env", kept, str(_installed("node/node")), str(_installed(script))]


def _installed(path: str) -> Path:
    found = Path(os.environ.get("HUBBUB_PEERS") or REPOSITORY / ".peers") / path
    if not found.exists():
        pytest.fail(f"{found} is missing: run `make peers`", pytrace=False)
    return found


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port of 127.0.0.1 where nobody listens, as long as the test starts nobody there."""
    with reserved() as port:
        yield port


@pytest.fixture(scope="module")
def module_port() -> Iterator[int]:
    """As `free_port`, for all tests of a module."""
    with reserved() as port:
        yield port


@dataclass(frozen=True, slots=True)
class HttpPeer:
    """A server process that listens; `url` has no path."""

    url: str
    port: int
    process: "subprocess.Popen[bytes] | forks.client.Forked"

    def stop(self) -> None:
        """Ends the process, with force when it does not end by itself. Harmless when it has ended."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_LIMIT_S)
        self.process.kill()
        self.process.wait()


@pytest.fixture
def http_peer(tmp_path: Path) -> Iterator[Callable[..., HttpPeer]]:
    """Starts a server that reads PORT: `http_peer(command, port=None, env={})`; returns once it listens."""
    with _peers(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def shared_http_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., HttpPeer]]:
    """As `http_peer`, for all tests of a module."""
    with _peers(tmp_path_factory.mktemp("peers")) as start:
        yield start


@contextmanager
def _peers(log_dir: Path) -> Iterator[Callable[..., HttpPeer]]:
    with ExitStack() as started:

        def start(command: Sequence[str], port: int | None = None, env: Mapping[str, str] | None = None) -> HttpPeer:
            port = port or started.enter_context(reserved())
            return started.enter_context(_listening(command, port, env or {}, log_dir))

        yield start


@contextmanager
def _listening(command: Sequence[str], port: int, env: Mapping[str, str], log_dir: Path) -> Iterator[HttpPeer]:
    log = log_dir / f"peer-{port}.log"
    with log.open("ab") as output:
        process = forks.popen(command, env=os.environ | env | {"PORT": str(port)}, output=output)
    peer = HttpPeer(f"http://127.0.0.1:{port}", port, process)
    try:
        give_up = time.monotonic() + START_LIMIT_S
        # Peers are programs of many makers, and have no common way to say that they listen.
        while not _accepts(port):
            if process.poll() is not None or time.monotonic() > give_up:
                pytest.fail(f"{command} does not listen:\n{log.read_text(errors='replace')}", pytrace=False)
            time.sleep(0.02)
        yield peer
    finally:
        peer.stop()


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
