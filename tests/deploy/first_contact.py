"""Somebody's first minute with Hubbub: an empty home, a clone, pipx and the system's Python, and nothing else.

    first_contact.py [--keep]

Installs by one command, takes over the servers that hosts have, starts a hub, calls, sees that something waits,
answers on the page, and makes the hub a service. Prints each step with the seconds of the processor that it took; exits
with 1 at the first step that does not do what it says, or takes too much. It has only the standard library, and changes
nothing outside of its home.
"""

import http.client
import http.server
import json
import os
import pty
import re
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import termios
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 300
"""Seconds for a command, on a machine that is busy."""

MOST_S = 60.0
"""Seconds of the processor that all steps may take together."""

MOST_TO_INSTALL_S = 40.0
"""Seconds of the processor that the installation may take."""

MOST_BYTES = 220 * 1000 * 1000
"""What the environment of an installation may occupy on the disk; pip is beside it, and of pipx."""

MOST_SILENCE_S = 5.0
"""Seconds between two signs of life at a terminal; measured while the installation has the processor."""

ROOT = Path(__file__).parents[2]

# An MCP server without a dependency: one tool that says what it is given, and one that asks a person.
SERVER = ROOT / "tests/peers/plain_server.py"

PIP_SETTINGS = ("PIP_CERT", "PIP_INDEX_URL", "PIP_FIND_LINKS", "PIP_CONFIG_FILE", "SSL_CERT_FILE")


class Failed(Exception):
    """A step did not do what it says."""


class Home:
    """The empty home, and what is run in it."""

    def __init__(self, path: Path, pipx: Path) -> None:
        self.path = path
        self.pipx = pipx
        self.bin = path / ".local/bin"
        self.folder = path / "work"
        self.folder.mkdir()
        self.python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
        self.began: list[subprocess.Popen[str]] = []
        self.hub = 0
        self._hub_s = 0.0
        self.request = ""
        kept = {name: os.environ[name] for name in PIP_SETTINGS if name in os.environ}
        self.environ = kept | {
            "HOME": str(path),
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "XDG_RUNTIME_DIR": str(path / "run"),
            "HUBBUBD_LISTEN": "127.0.0.1:0",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
        }

    def run(self, *words: "str | Path", status: int = 0) -> str:
        """Runs a command to its end; returns what it printed."""
        done = subprocess.run(
            words, cwd=self.folder, env=self.environ, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
        if done.returncode != status:
            shown = " ".join(str(word) for word in words)
            raise Failed(f"{shown}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def watch(self, *words: "str | Path") -> float:
        """Runs a command at a terminal; returns the longest time for which it said nothing."""
        reading, writing = pty.openpty()
        termios.tcsetwinsize(writing, (24, 80))
        process = subprocess.Popen(
            words, cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL, stdout=writing, stderr=writing
        )
        os.close(writing)
        said, silence_s, last = b"", 0.0, time.monotonic()
        while select.select([reading], [], [], LIMIT_S)[0]:
            try:
                said += os.read(reading, 4096)
            except OSError:  # how Linux says that nobody writes any more (pty(7))
                break
            silence_s, last = max(silence_s, time.monotonic() - last), time.monotonic()
        os.close(reading)
        if process.wait(LIMIT_S) != 0:
            raise Failed(f"{words[-2:]}: exit {process.returncode}\n{said.decode(errors='replace')}")
        return silence_s

    def hubbub(self, *words: str, status: int = 0) -> str:
        """Runs `hubbub` as somebody types it."""
        return self.run(self.bin / "hubbub", *words, status=status)

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Starts a `hubbub` that goes on, with its output in a pipe."""
        process = subprocess.Popen(
            [self.bin / "hubbub", *words], cwd=self.folder, env=self.environ, stdout=subprocess.PIPE, text=True
        )
        self.began.append(process)
        return process

    def spent_s(self) -> float:
        """The seconds of the processor of all that has ended, and of the hub and its servers so far."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        stat = Path(f"/proc/{self.hub}/stat")
        if stat.exists():  # once it has ended, what it took is what it was last seen to have taken
            fields = stat.read_text().rpartition(")")[2].split()
            self._hub_s = (int(fields[11]) + int(fields[13])) / os.sysconf("SC_CLK_TCK")
        return ended.ru_utime + self._hub_s


@dataclass(frozen=True)
class Cost:
    """What an installation took."""

    processor_s: float
    silence_s: float
    bytes: int


def cost(home: Home, *words: "str | Path") -> Cost:
    """Runs what installs `hubbub` at a terminal; raises Failed if it takes more than it may."""
    before = home.spent_s()
    silence_s = home.watch(*words)
    environment = (home.bin / "hubbub").resolve().parents[1]
    occupied = sum(each.lstat().st_blocks * 512 for each in environment.rglob("*"))
    took = Cost(home.spent_s() - before, silence_s, occupied)
    if took.processor_s > MOST_TO_INSTALL_S or took.bytes > MOST_BYTES or took.silence_s > MOST_SILENCE_S:
        raise Failed(f"the installation takes too much: {say_cost(took)}")
    return took


def say_cost(took: Cost) -> str:
    """Says what an installation took, in a line."""
    return f"{took.processor_s:.1f} s, {took.bytes // 1_000_000} MB, silent for {took.silence_s:.1f} s at most"


def install(home: Home) -> str:
    """One command installs everything, within bounds, and says something all the while."""
    took = cost(home, home.pipx, "install", ROOT)
    return f"{home.hubbub('--version').strip()}, {say_cost(took)}"


def plant(home: Home) -> str:
    """Files of nine hosts, each with a server of its own."""
    script = str(shutil.copy(SERVER, home.path / "server.py"))

    def server(name: str) -> dict[str, object]:
        return {"command": home.python, "args": [script, name]}

    command = json.dumps(home.python)
    files = {
        ".config/Claude/claude_desktop_config.json": json.dumps({"mcpServers": {"desktop": server("desktop")}}),
        ".claude.json": json.dumps({"mcpServers": {"code": {"type": "stdio", **server("code")}}, "numStartups": 3}),
        ".config/Code/User/mcp.json": json.dumps({"servers": {"vscode": {"type": "stdio", **server("vscode")}}}),
        ".cursor/mcp.json": json.dumps({"mcpServers": {"cursor": server("cursor")}}),
        ".codeium/windsurf/mcp_config.json": json.dumps({"mcpServers": {"windsurf": server("windsurf")}}),
        ".config/zed/settings.json": f"// Zed\n{json.dumps({'context_servers': {'zed': server('zed')}})}",
        ".codex/config.toml": f"[mcp_servers.codex]\ncommand = {command}\nargs = {json.dumps([script, 'codex'])}\n",
        ".config/goose/config.yaml": "extensions:\n  goose:\n    type: stdio\n    enabled: true\n    name: goose\n"
        f"    cmd: {command}\n    args: {json.dumps([script, 'goose'])}\n",
        "work/.mcp.json": json.dumps({"mcpServers": {"folder": server("folder")}}),
    }
    for name, text in files.items():
        (home.path / name).parent.mkdir(parents=True, exist_ok=True)
        (home.path / name).write_text(text)
    return f"{len(files)} files"


def init(home: Home) -> str:
    """`hubbub init` takes over the servers of all of them."""
    home.hubbub("init", "--yes")
    written = (home.path / ".config/hubbub/hubbub.toml").read_text()
    taken = re.findall(r"^\[servers\.([\w-]+)\]", written, re.MULTILINE)
    wanted = {"desktop", "code", "vscode", "cursor", "windsurf", "zed", "codex", "goose", "folder"}
    if set(taken) != wanted:
        raise Failed(f"taken over: {taken}")
    return f"{len(taken)} servers"


def up(home: Home) -> str:
    """A hub in the background, with all servers connected."""
    home.hub = json.loads(home.hubbub("--json", "up", "-d"))["pid"]
    rows = home.hubbub("--json", "servers", "list", "--wait", "connected", "--timeout", str(LIMIT_S)).splitlines()
    return f"process {home.hub}, {len(rows)} servers connected"


def call(home: Home) -> str:
    """A call to one of them."""
    result = json.loads(home.hubbub("--json", "call", "code", "echo", '{"text": "hello"}'))
    return str(result["content"][0]["text"])


def ask(home: Home) -> str:
    """A call that asks a person, and waits."""
    home.hubbub("call", "folder", "ask", '{"message": "Who is there?"}', "--detach", "--call-id", "first")
    give_up = time.monotonic() + LIMIT_S
    while not (waiting := home.hubbub("--json", "inbox", "list", "--state", "open")):
        if time.monotonic() > give_up:
            raise Failed("the question did not come")
    home.request = json.loads(waiting.splitlines()[0])["id"]
    return home.request


def tell(home: Home) -> str:
    """A notification reaches a webhook on this machine; it has no content of the question."""
    told: list[bytes] = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Hook) as hook:
        threading.Thread(target=hook.serve_forever, daemon=True).start()
        home.hubbub("notify", f"json://127.0.0.1:{hook.server_port}", "--after", "0", "--once")
        hook.shutdown()
    if len(told) != 1 or b"Who is there?" in told[0]:
        raise Failed(f"the webhook got {told}")
    return f"{len(told[0])} bytes"


def answer(home: Home) -> str:
    """The question is answered as the page does, and the call returns."""
    page = home.start("--json", "web", "--no-browser")
    assert page.stdout is not None
    url = json.loads(page.stdout.readline())["url"]
    address, _, link = url.removeprefix("http://").partition("/#login=")
    session = {"x-hubbub-token": ""}

    def post(action: str, **body: object) -> dict[str, object]:
        connection = http.client.HTTPConnection(address, timeout=LIMIT_S)
        headers = {"origin": f"http://{address}", "content-type": "application/json", **session}
        connection.request("POST", f"/api/{action}", json.dumps(body), headers)
        response = connection.getresponse()
        content = json.loads(response.read())
        if response.status != 200:
            raise Failed(f"{action}: {response.status} {content}")
        if cookie := response.headers["set-cookie"]:
            session["cookie"] = cookie.partition(";")[0]
        connection.close()
        return dict(content)

    session["x-hubbub-token"] = str(post("login", link=link)["token"])
    post("answer", id=home.request, answer_id=str(uuid.uuid4()), accept={"name": "Ada"})
    page.terminate()
    page.wait(LIMIT_S)
    home.hubbub("calls", "watch", "first")
    result = json.loads(home.hubbub("--json", "calls", "get", "first"))["result"]
    return str(result["content"][0]["text"])


def down(home: Home) -> str:
    """The hub ends."""
    home.hubbub("down")
    return "ended"


def service(home: Home) -> str:
    """The unit that makes the hub a service, which systemd takes."""
    unit = home.path / "hubbub.service"
    unit.write_text(home.hubbub("service", "install", "--print"))
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return "written; there is no systemd-analyze here to look at it"
    (home.path / "run").mkdir(mode=0o700, exist_ok=True)
    if said := home.run(analyze, "--user", "verify", unit):
        raise Failed(said)
    return "systemd-analyze verify has nothing to say"


STEPS = (install, plant, init, up, call, ask, tell, answer, service, down)


def installer(path: Path) -> Path:
    """Where pipx is: what somebody has before the first minute begins."""
    if found := shutil.which("pipx"):
        return Path(found)
    python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
    subprocess.run([python, "-m", "venv", path], check=True, capture_output=True, timeout=LIMIT_S)
    subprocess.run([path / "bin/pip", "install", "pipx"], check=True, capture_output=True, timeout=LIMIT_S)
    return path / "bin/pipx"


@contextmanager
def fresh(*, keep: bool) -> Iterator[Home]:
    """An empty home; no process of it goes on afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="first-contact-"))
    path = folder / "home"
    path.mkdir()
    home = Home(path, installer(folder / "pipx"))
    try:
        yield home
    finally:
        for process in home.began:
            if process.poll() is None:
                process.kill()
                process.wait()
        if (home.bin / "hubbub").exists():
            subprocess.run([home.bin / "hubbub", "down", "--now"], env=home.environ, capture_output=True, check=False)
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def main(words: list[str]) -> int:
    """Goes through the steps; returns the exit code."""
    if set(words) - {"--keep"}:
        print((__doc__ or "").split("\n\n")[1].strip())
        return os.EX_USAGE
    with fresh(keep="--keep" in words) as home:
        before = home.spent_s()
        total = 0.0
        for step in STEPS:
            try:
                what = step(home)
            except (Failed, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
                print(f"{step.__name__:8} FAILED  {error}", flush=True)
                return 1
            spent, before = home.spent_s() - before, home.spent_s()
            total += spent
            print(f"{step.__name__:8} {spent:5.1f} s  {what}", flush=True)
        print(f"{'in all':8} {total:5.1f} s of the processor", flush=True)
        return 0 if total < MOST_S else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
