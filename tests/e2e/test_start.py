"""What a start leaves out: it is made up for as soon as the program is up, or when it is needed."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

LIMIT_S = 60
AT_THE_END = "import atexit, gc, sys; atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count() > 10_000))"


@pytest.mark.parametrize(
    ("module", "arguments"),
    [("hubbubd.__main__", ["--help"]), ("hubbub_cli", ["--data-dir", "DIRECTORY", "status"])],
)
def test_garbage_is_looked_for_again_once_all_is_imported(module: str, arguments: list[str], tmp_path: Path) -> None:
    words = [str(tmp_path) if word == "DIRECTORY" else word for word in arguments]
    done = subprocess.run(
        [sys.executable, "-c", f"{AT_THE_END}; from {module} import main; main()", *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.stdout.splitlines()[-1] == "True True", done.stderr


@pytest.mark.parametrize(("module", "program"), [("hubbubd", "hubbubd"), ("hubbub_cli", "hubbub")])
def test_each_program_starts_as_a_module_too(module: str, program: str) -> None:
    command = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stdout) == (0, f"{program} {version('hubbub')}\n"), done.stderr


NOT_AT_START = {
    "cryptography": "certificates and tokens of an identity provider",
    "httpx2": "servers over HTTP",
    "jwt": "tokens of an identity provider",
    "mcp": "servers",
    "mcp_types": "servers",
    "opentelemetry": "telemetry that is on",
    "starlette": "Connect",
    "uvicorn": "Connect and metrics over HTTP",
}
"""What the daemon imports when it is needed, and what for: each takes a noticeable part of a start."""

OWN_NOT_AT_START = ("hubbubd.downstream", "hubbubd.rpc.mcp.bridge", "hubbubd.runtime.diagnostics.checks")
"""Modules of the daemon that hosts and operators need, but no start."""


def test_the_daemon_is_ready_before_it_has_imported_what_only_some_hubs_need(tmp_path: Path) -> None:
    said = until_ready(tmp_path, "--listen", "127.0.0.1:0")
    assert imported(said) & NOT_AT_START.keys() == set()
    assert {module for module in modules(said) if module.startswith(OWN_NOT_AT_START)} == set()


def test_what_a_hub_offers_is_imported_before_the_thread_that_imports_what_servers_need(tmp_path: Path) -> None:
    """Two threads that import the same packages can wait for each other, and imports on the loop stop it."""
    config = tmp_path / "hub.toml"
    config.write_text(OFFERS_ALL)
    before, _, after = until_ready(tmp_path, "--config", str(config)).partition("server connecting")
    assert imported(before) >= {"connectrpc", "jwt", "uvicorn"}
    assert modules(after).isdisjoint(
        {"hubbubd.rpc.listeners.connect", "hubbubd.rpc.auth.jwt", "hubbubd.rpc.listeners.metrics"}
    )


def test_what_opens_links_is_imported_beside_the_loop() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_LINK], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stdout.split() == ["COMMAND_NOT_FOUND", "True", "False"], done.stderr


def test_what_serves_bridges_is_imported_beside_the_loop_and_made_once_for_all_that_wait() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_BRIDGES], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stdout.split() == ["True", "False", "INVALID_ARGUMENT", "INVALID_ARGUMENT", "1"], done.stderr


def test_the_diagnostics_are_imported_beside_the_loop() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_CHECK], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_what_seals_states_is_imported_beside_the_loop() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_STATE], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stdout.split() == ["True", "False"], done.stderr


FIRST_STATE = """
import sys, threading
import anyio
from hubbubd.timing.clock import Clock
from hubbubd.downstream.questions.state_tokens import BoundRequest, StateTokens
from hubbubd.store.vault.state_keys import StateKeyRing

class Watched:
    threads = set()
    def find_spec(self, name, path=None, target=None):
        if name.startswith("cryptography."):
            self.threads.add(threading.current_thread())

async def main():
    sys.meta_path.insert(0, Watched())
    clock = Clock(anyio.current_time)
    tokens = StateTokens(StateKeyRing.in_memory(clock), clock)
    await tokens.import_cipher()
    bound = BoundRequest(principal="p", profile="d", method="m", name="n", params="")
    assert tokens.open(tokens.seal("call", 1, bound, ttl_s=60), bound).call_id == "call"
    print(bool(Watched.threads), threading.main_thread() in Watched.threads)

anyio.run(main)
"""


# The first of all bridges leaves during the import, and two more come then.
FIRST_BRIDGES = """
import asyncio, sys, threading, types
import anyio
from hubbubd.rpc.servicers.hosts import McpService
from hubbubd.store.vault.state_keys import StateKeyRing
from hubbubd.timing.clock import Clock

class Watched:
    threads = set()
    def find_spec(self, name, path=None, target=None):
        if name.startswith("hubbubd.downstream"):
            self.threads.add(threading.current_thread())

async def no_frames():
    return
    yield

async def main():
    sys.meta_path.insert(0, Watched())
    clock = Clock(anyio.current_time)
    followers = []
    configuration = types.SimpleNamespace(on_adopted=followers.append)
    hub = types.SimpleNamespace(calls=None, clock=clock, configuration=configuration)
    service = McpService(hub, StateKeyRing.in_memory(clock), None, 1 << 20)
    leaving = asyncio.create_task(service.serve(no_frames(), None))
    with anyio.move_on_after(5):
        while not Watched.threads:
            await anyio.sleep(0.001)
    leaving.cancel()
    coming = [service.serve(no_frames(), None) for _ in range(2)]
    errors = await asyncio.gather(*coming, return_exceptions=True)
    print(bool(Watched.threads), threading.main_thread() in Watched.threads)
    print(*(error.reason for error in errors), len(followers))

anyio.run(main)
"""


FIRST_CHECK = """
import sys, threading
import anyio
from hubbubd.rpc.servicers.admin import AdminService

class Watched:
    threads = set()
    def find_spec(self, name, path=None, target=None):
        self.threads.add(threading.current_thread())

async def main():
    await anyio.to_thread.run_sync(int)  # which imports what threads need
    sys.meta_path.insert(0, Watched())
    try:
        await AdminService(None).check_hub(None)
    except AttributeError:  # there is no hub to check
        print(bool(Watched.threads), threading.main_thread() in Watched.threads)

anyio.run(main)
"""


FIRST_LINK = """
import sys, threading, types
import anyio
from hubbubd.config import ServerConfig
from hubbubd.errors import UpstreamError
from hubbubd.upstream.connector import McpConnector

class Watched:
    threads = set()
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("hubbubd.upstream.", "mcp.")):
            self.threads.add(threading.current_thread())

async def main():
    sys.meta_path.insert(0, Watched())
    config = ServerConfig(name="none", command="/nowhere/none")
    try:
        inbound = types.SimpleNamespace(on_stderr=None, note=lambda *_: None)
        async with McpConnector(None).open(config, inbound, None, None):
            pass
    except UpstreamError as error:
        print(error.fault.code, bool(Watched.threads), threading.main_thread() in Watched.threads)

anyio.run(main)
"""


OFFERS_ALL = """
[hub]
listen = "127.0.0.1:0"
connect_listen = "127.0.0.1:0"
metrics_listen = "127.0.0.1:0"
oidc_issuer = "https://issuer.example"
oidc_audience = "hub"

[servers.one]
command = "cat"
"""


# What commands import when they talk to a hub, to lay out a page, and for values that are not plain.
OF_A_HUB = {"anyio", "asyncio", "google", "grpc", "hubbub"}
OF_A_PAGE = {"markdown_it", "pygments", "rich"}
OF_ALL = OF_A_HUB | OF_A_PAGE | {"pydantic"}
OF_RECORDS = {"hubbub_client", "hubbub_frontend"}


@pytest.mark.parametrize(
    ("words", "status", "unneeded"),
    [
        (["--version"], 0, OF_ALL | OF_RECORDS),
        (["--help"], 0, OF_ALL | OF_RECORDS),
        (["inbx"], 2, OF_ALL),
        (["inbox"], 2, OF_ALL),
        (["inbox", "lisst"], 2, OF_ALL),
        (["inbox", "claim"], 2, OF_ALL),
        (["inbox", "list", "--kind", "x"], 2, OF_ALL),
        (["call", "--nope"], 2, OF_ALL),
    ],
)
def test_a_command_that_asks_no_hub_imports_only_what_it_needs(
    words: list[str], status: int, unneeded: set[str]
) -> None:
    done = started(words)
    assert done.returncode == status
    assert imported(done.stderr) & unneeded == set()


async def test_a_list_imports_neither_what_lays_out_pages_nor_what_its_hub_is_not_asked_for(start_hub: Any) -> None:
    hub = await start_hub({})
    for words in (["inbox", "list"], ["--json", "inbox", "list", "--limit", "3", "--state", "open"]):
        done = await to_thread.run_sync(started, ["--data-dir", str(hub.data_dir), *words])
        assert done.returncode == 0
        assert imported(done.stderr) >= {"grpc", "hubbub"}
        assert imported(done.stderr) & (OF_A_PAGE | {"anyio", "pydantic"}) == set()
        assert modules(done.stderr).isdisjoint({f"hubbub_client.{part}" for part in NOT_ASKED})


NOT_ASKED = ("admin", "audit", "catalog", "events", "servers", "specs", "store", "tasks", "tokens")


def started(words: list[str]) -> subprocess.CompletedProcess[str]:
    """A run of the command line that has ended; its stderr says what it has imported."""
    command = [sys.executable, "-X", "importtime", "-c", "from hubbub_cli import main; main()", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def until_ready(directory: Path, *options: str) -> str:
    """What a hub, killed when it is ready, writes to stderr: its imports, and its log. More than a pipe holds."""
    command = [sys.executable, "-X", "importtime", "-m", "hubbubd", "--data-dir", str(directory / "data"), *options]
    said = directory / "stderr"
    with said.open("w") as stderr, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as hub:
        assert hub.stdout is not None
        ready = hub.stdout.readline()
        hub.kill()
    assert "ready" in ready, said.read_text()
    return said.read_text()


def imported(said: str) -> set[str]:
    """The packages in what `-X importtime` writes."""
    found = modules(said)
    assert len(found) > 50
    return {module.partition(".")[0] for module in found}


def modules(said: str) -> set[str]:
    """The modules in what `-X importtime` writes."""
    return {line.rpartition("|")[2].strip() for line in said.splitlines() if line.startswith("import time:")}
