"""Every command of the documents, run as written against the demo; or the reason why one is not."""

import json
import os
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE
from uuid import uuid4

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from .conftest import BIN, child, environment
from .terminals import on_a_terminal

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "benchmarks/README.md": "they take minutes; tests/e2e/test_benchmarks.py has a short one of each part",
    "CONTRIBUTING.md": "the targets of make run these tests",
    "docs/agents-behind.md": "they install one; tests/web/test_agent_sessions.py has one of the tests' own at work",
    "docs/connect.md": "tests/e2e/test_connect.py types whole blocks, as functions and pipes need",
    "docs/examples/page/README.md": "tests/e2e/test_examples.py serves the page with what these commands install",
    "docs/examples/two_agents/README.md": "tests/e2e/test_examples.py runs it with agents of the tests' own",
    "docs/fleet.md": "they are typed on several machines; tests/e2e/test_run_fleet.py has a fleet on this one",
    "docs/frontends/go.md": "tests/e2e/test_frontends.py does, with the plugins of Debian",
    "docs/frontends/typescript.md": "tests/e2e/test_connect.py runs the example with what these commands install",
    "docs/kubernetes.md": "they need a cluster; tests/deploy/test_kubernetes.py types those that do without",
    "docs/notify.md": "they reach services of others; tests/e2e/test_notify.py does it with one on this machine",
    "docs/start.md": "tests/e2e/test_first_page.py does, in an empty home",
    "docs/tls.md": "tests/e2e/test_network.py does, with a hub that is served by TLS",
}
"""Documents whose commands are run by other tests, or not at all, and which or why."""
ALL_DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]
)
DOCUMENTS = {name: (ROOT / name).read_text() for name in ALL_DOCUMENTS if name not in ELSEWHERE}
LIMIT_S = 120

REDIRECTED = """hubbub inbox answer REQUEST --accept \
'{"redirect_url": "http://127.0.0.1:40123/callback?code=...&state=..."}'"""
INSTALLS = "it installs: `make test` has done it, from the same lists"
PACKAGES = "it installs: tests/deploy/test_packages.py does, in a copy of the clone"
FIRST = "test_first_page.py does, in an empty home"
OF_ONE_S_OWN = "sqlite:$HOME/.local/share/hubbub/hubbub.db"
OF_A_FLEET = ("status", "move demo b", "drain b", "resume b", "expel b --dead", "rotate-key", "finish-upgrade")
IN_A_FLEET = "the demo is alone; tests/clients/test_fleet_commands.py does"
COPIES = "test_store_copy.py does, from a hub that has ended"
NOT_RUN = {
    "pipx install .": "it installs: tests/deploy/first_contact.py does, in an empty home",
    "uv tool install .": PACKAGES,
    "uvx --from . hubbub --help": PACKAGES,
    "pip install ./clients/library": INSTALLS,
    "hubbub init": FIRST,
    "hubbub up -d": FIRST,
    "hubbub down": "it would end the demo; test_up.py does",
    f"hubbub store copy {OF_ONE_S_OWN} postgresql://hubbub@db.example/hubbub --verify": COPIES,
    "hubbub store copy FROM TO --verify": COPIES,
    "claude mcp add hubbub -- hubbub mcp": "the program is not here; `hubbub mcp install` writes the same",
    "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317 hubbubd": "test_traces.py does, with a collector",
    "HUBBUBD_METRICS_LISTEN=127.0.0.1:9464 hubbubd": "tests/deploy/test_metrics.py does, on a free port",
    REDIRECTED: "test_authorizations.py does it, with an address where a browser has really ended",
    **{f"hubbub fleet {command}": IN_A_FLEET for command in OF_A_FLEET},
}
"""The commands that are not run, and why."""

# What shows that a command without an end of its own is at work, and the keys that end it; None stands for Ctrl-C.
ENDLESS: dict[str, tuple[str, str | None]] = {
    "hubbub web": ("http://127.0.0.1:", None),
    "hubbub --as ann tui": ("● live", "q"),
    "hubbub --as robot agent --rules rules.toml": ('"answered"', None),
    "hubbub --as robot agent --rules rules.toml --dry-run": ('"would"', None),
    "hubbubd --config servers.toml": ("Hubbub serves its API at ", None),
}
HOSTS = tuple(path.stem for path in sorted((ROOT / "docs/hosts").glob("*.md")))
# These call nothing: what one of them leaves behind is nothing to the next, so that one demo does for all.
CALL_NOTHING = {
    "README.md",
    *(f"docs/{name}.md" for name in ("access", "configuration", "errors", "metrics", "operations", "servers", "store")),
    *(f"docs/{name}.md" for name in ("login", "mcp", "tracing", "tui", "web")),
    *(f"docs/hosts/{name}.md" for name in HOSTS),
}
# What must have been printed when a document is through.
SAYS = {
    "docs/answer.md": ["Ordered: 2 x soup", "An old silent pond", "completed"],
    "docs/cli.md": ["completed"],
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    language: str
    text: str

    def commands(self) -> list[str]:
        """The commands of a shell's block, each with the settings of its shell before it."""
        settings, found = "", list[str]()
        for line in self.text.replace("\\\n", " ").splitlines():
            command = re.sub(r"\s+#.*", "", line).strip()
            if re.match(r"[A-Z]+=|cd ", command):
                settings += f"{command} && "
            elif command:
                found.append(settings + command)
        return found


def blocks(document: str) -> list[Block]:
    found = re.findall(r"^```(\w*).*\n((?:.*\n)*?)```$", DOCUMENTS[document], re.MULTILINE)
    return [Block(language, text) for language, text in found]


def test_a_document_whose_commands_are_run_elsewhere_has_commands_and_names_a_test_that_is_there() -> None:
    for name, reason in ELSEWHERE.items():
        assert re.search(r"^```(?:sh)?$", (ROOT / name).read_text(), re.MULTILINE), name
        for test in re.findall(r"tests/\S+\.py", reason):
            assert (ROOT / test).is_file(), test


def shell_commands(document: str) -> list[str]:
    return [command for block in blocks(document) if block.language == "sh" for command in block.commands()]


def bare(command: str) -> str:
    return command.rpartition(" && ")[2]


ALL = {document: shell_commands(document) for document in DOCUMENTS}
RUN = {document: [each for each in commands if bare(each) not in NOT_RUN] for document, commands in ALL.items()}


def test_a_block_without_a_language_has_no_commands_and_every_reason_is_needed() -> None:
    for document in DOCUMENTS:
        for block in blocks(document):
            words = re.findall(r"^(hubbubd?|make|pipx?|npm|curl) ", block.text, re.MULTILINE)
            assert block.language == "sh" or not words, f"{document}: {block.text}"
    written = {bare(command) for commands in ALL.values() for command in commands}
    assert NOT_RUN.keys() | ENDLESS.keys() <= written
    assert ALL.keys() >= CALL_NOTHING
    for document in CALL_NOTHING:
        calls = [command for command in ALL[document] if re.search(r"\bhubbub\b.* (call|send|agent)\b", command)]
        assert not calls, document


class Demo:
    """What `make run` starts, with a data directory and ports of its own, and a shell beside it."""

    def __init__(
        self, process: Process, said: BufferedByteReceiveStream, directory: Path, connect: str, environ: dict[str, str]
    ) -> None:
        self.process = process
        self.said = said
        self.directory = directory
        self._connect = connect
        self._environ = environ

    async def run(self, command: str) -> str:
        """What a command prints that must go well."""
        typed = await self._typed(command)
        if bare(command) in ENDLESS:
            return await self._on_a_terminal(typed, *ENDLESS[bare(command)])
        return await self._shell(typed)

    async def _typed(self, command: str) -> str:
        """The command as its reader types it here: with an id, files and a port in their places."""
        typed = command.replace("COPY", str(self.directory / f"copy-{uuid4().hex}.db"))
        typed = typed.replace("rules.toml", str(self.directory / "rules.toml"))
        typed = typed.replace("servers.toml", str(self.directory / "servers.toml"))
        typed = typed.replace(" cases", f" {self.directory / 'cases'}")
        typed = typed.replace("127.0.0.1:7879", self._connect)
        typed = typed.replace("~/.local/share/hubbub", str(self.directory / "data"))
        return typed.replace("REQUEST", await self._open_request()) if "REQUEST" in typed else typed

    async def _open_request(self) -> str:
        """The id that a reader copies from `inbox list`."""
        with anyio.fail_after(LIMIT_S):
            while not (listed := await self._shell("hubbub --json inbox list --state open")):
                pass
        return str(json.loads(listed.splitlines()[0])["id"])

    async def _shell(self, command: str) -> str:
        with anyio.fail_after(LIMIT_S):
            done = await anyio.run_process(
                ["bash", "-c", command], cwd=ROOT, env=self._environ, check=False, stdin=DEVNULL
            )
        assert done.returncode == 0, f"{command}\n{done.stdout.decode()}\n{done.stderr.decode()}"
        return done.stdout.decode()

    async def _on_a_terminal(self, command: str, sign: str, keys: str | None) -> str:
        async with on_a_terminal(["bash", "-c", f"exec {command}"], self._environ) as person:
            await person.sees(sign)
            if keys is None:
                person.process.send_signal(signal.SIGINT)
            else:
                person.types(keys)
            assert await person.ends() == 0, f"{command}\n{person.shown}"
            return person.shown


def _of_a_demo(directory: Path) -> dict[str, str]:
    return {
        **environment(),
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "HUBBUB_PEERS": os.environ.get("HUBBUB_PEERS", str(ROOT / ".peers")),
        "BROWSER": "true %s",
        "HOME": str(directory),
        "HUBBUBD_MCP_LISTEN": "127.0.0.1:0",
    }


@asynccontextmanager
async def running_demo(directory: Path, free_port: int) -> AsyncGenerator[Demo]:
    """A demo whose servers are connected."""
    connect = f"127.0.0.1:{free_port}"
    environ = _of_a_demo(directory)
    command = ["python", "docs/demo/run.py", "--listen", "127.0.0.1:0", "--data-dir", str(directory / "data")]
    rules = [block.text for block in blocks("docs/agents.md") if block.text.startswith("[[rule]]")]
    (directory / "rules.toml").write_text("\n".join(rules))
    (directory / "servers.toml").write_text("")
    async with child(command, cwd=ROOT, env=environ | {"HUBBUBD_CONNECT_LISTEN": connect}, stdout=PIPE) as process:
        assert process.stdout is not None
        said = BufferedByteReceiveStream(process.stdout)
        with anyio.fail_after(LIMIT_S):
            await said.receive_until(b"\n", 1 << 16)
        reached = {"HUBBUB_DATA_DIR": str(directory / "data")}
        other = {"HUBBUBD_LISTEN": "127.0.0.1:0", "HUBBUBD_DATA_DIR": str(directory / "other")}
        demo = Demo(process, said, directory, connect, environ | reached | other)
        await demo.run("hubbub servers list --wait connected --timeout 60")
        yield demo
        process.send_signal(signal.SIGTERM)
        with anyio.fail_after(LIMIT_S):
            assert await process.wait() == 0


@pytest.fixture
async def own_demo(tmp_path: Path, free_port: int) -> AsyncIterator[Demo]:
    async with running_demo(tmp_path, free_port) as demo:
        yield demo


@pytest.fixture(scope="module")
async def shared_demo(tmp_path_factory: pytest.TempPathFactory, module_port: int) -> AsyncIterator[Demo]:
    async with running_demo(tmp_path_factory.mktemp("demo"), module_port) as demo:
        yield demo


@pytest.fixture
def demo(request: pytest.FixtureRequest, document: str) -> Demo:
    """One that nobody has used, or that which is shared by documents that call nothing."""
    return request.getfixturevalue("shared_demo" if document in CALL_NOTHING else "own_demo")


@pytest.mark.parametrize("document", [document for document, commands in RUN.items() if commands])
async def test_the_commands_of_a_document_work_as_written(document: str, demo: Demo) -> None:
    said = [await demo.run(command) for command in RUN[document]]
    for text in SAYS.get(document, ()):
        assert text in "".join(said)


async def test_the_program_of_the_readme_works_as_written(shared_demo: Demo) -> None:
    (program,) = [block.text for block in blocks("README.md") if block.language == "python"]
    (shared_demo.directory / "program.py").write_text(program)
    assert '"timezone": "UTC"' in await shared_demo.run(f"python {shared_demo.directory}/program.py")


async def test_at_a_terminal_the_demo_says_each_thing_once_and_of_each_server_how_many_tools_it_has(
    tmp_path: Path,
) -> None:
    command = ["python", "docs/demo/run.py", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    async with on_a_terminal(command, _of_a_demo(tmp_path)) as person:
        await person.sees(f"{BIN / 'hubbub'} --data-dir {tmp_path / 'data'} call demo order_lunch")
        told: dict[str, str] = {}
        with anyio.fail_after(LIMIT_S):
            while told.keys() != {"demo", "time", "git", "fetch"}:
                await person.sees(": connected (")
                await person.sees(")")
                told = dict(
                    re.findall(r"^(\w+): connected \(stdio, (\d+ tools?), \d+\.\d s\)$", person.shown, re.MULTILINE)
                )
        person.process.send_signal(signal.SIGINT)
        assert await person.ends() == 0
    assert (told["demo"], told["fetch"]) == ("6 tools", "1 tool")
    assert '{"event"' not in person.shown
    assert "server connected" not in person.shown
    assert "server connected" in (tmp_path / "data/hubbubd.log").read_text()
