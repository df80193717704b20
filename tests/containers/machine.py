"""Docker on a machine that has none: Debian's, in a file system and namespaces of its own.

Mounts, processes, bridges, ports and rules of its firewall are in the namespaces and end with their first process. That
ends when this program ends, also by kill -9. Outside there are a cache, and a cgroup that is removed afterwards. Images
are fetched from nowhere; packages come through a network in user space (slirp4netns), so nothing is forwarded here.
"""

import fcntl
import os
import shutil
import subprocess
import time
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from .report import StepFailed

HERE: Final = Path(__file__).parent
SUITE: Final = "trixie"
MIRROR: Final = "http://deb.debian.org/debian"
PACKAGES: Final = "docker.io docker-cli docker-buildx docker-compose iptables iproute2 slirp4netns"
MOST_LAYERS: Final = "4GB"
"""Of builds before, so much is kept."""
DOWNLOAD: Final = "apt-get -qq -o APT::Sandbox::User=root download"
NAMESERVER: Final = "10.0.2.3"
"""That of slirp4netns, which asks the one of this machine."""
SAY_EVERY_S: Final = 5
LIMIT_S: Final = 900
READY_S: Final = 60
NAMESPACES: Final = ("--mount", "--pid", "--net", "--ipc", "--uts")
NEEDED: Final = ("apt-get", "dpkg-deb", "nsenter", "setpriv", "unshare")


def find_obstacle() -> str:
    """Return why no engine can be made on this machine; empty if one can."""
    if os.uname().sysname != "Linux":
        return "make containers needs Linux: it makes namespaces and mounts"
    if os.geteuid() != 0:
        return "make containers needs root, since it makes namespaces and mounts: sudo make containers"
    missing = [name for name in NEEDED if shutil.which(name) is None]
    return f"make containers needs {', '.join(missing)}: apt-get install apt dpkg util-linux" if missing else ""


def run(
    words: Sequence[str | Path],
    *,
    title: str = "",
    given: str | None = None,
    limit_s: float = LIMIT_S,
    stdin: IO[bytes] | None = None,
) -> str:
    """Run a command and return what it prints; say every few seconds that it goes on. Raise StepFailed if it fails."""
    began = time.monotonic()
    process = subprocess.Popen(
        words,
        text=True,
        stdin=stdin or (subprocess.PIPE if given is not None else subprocess.DEVNULL),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with process:
        while True:
            try:
                shown, _ = process.communicate(given, timeout=SAY_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                seconds = time.monotonic() - began
                print(f"  {title or words[0]}: {seconds:.0f} s", flush=True)
                if seconds > limit_s:
                    process.kill()
                    raise StepFailed(f"{title or words[0]} took more than {limit_s:.0f} s") from None
            except BaseException:
                process.kill()
                raise
    if process.returncode:
        raise StepFailed(f"{' '.join(map(str, words))[:300]}: exit status {process.returncode}: {shown.strip()}")
    return shown


class Machine:
    """The engine's file system and namespaces. Below `peers` stays what can be used again."""

    def __init__(self, peers: Path, tree: Path) -> None:
        self.cache = peers / "containers"
        self.debian = self.cache / "debian"
        self.contexts = self.cache / "contexts"
        self._root = self.cache / "engine"
        self._store = self.cache / "store"
        self._tree = tree
        self._log = self.cache / "engine.log"
        self._first = 0
        self._namespace = ""
        self._cgroup = f"hubbub-containers-{zlib.crc32(bytes(self.cache)):08x}"

    def prepare(self) -> None:
        """Make the file systems, if an earlier run has not."""
        self.cache.mkdir(parents=True, exist_ok=True)
        if not self.debian.exists():
            self._bootstrap(self.debian.with_suffix(".part"))
        if not self._root.exists():
            self._install(self._root.with_suffix(".part"))
        for folder in (self._store, self.contexts):
            folder.mkdir(exist_ok=True)

    def _bootstrap(self, part: Path) -> None:
        remove(part)
        tools = self.cache / "tools"
        program: str | Path | None = shutil.which("debootstrap")
        variables = ()
        if program is None:
            with _empty(tools):
                run(
                    (
                        "sh",
                        "-c",
                        f"cd {tools} && {DOWNLOAD} debootstrap && dpkg-deb -x *.deb .",
                    ),
                    title="debootstrap is fetched",
                )
            program = tools / "usr/sbin/debootstrap"
            variables = (f"DEBOOTSTRAP_DIR={tools}/usr/share/debootstrap",)
        # It mounts /proc in there: in namespaces of its own, so that nothing stays mounted.
        run(
            (
                "unshare",
                *NAMESPACES[:2],
                "--fork",
                "--kill-child",
                "env",
                *variables,
                program,
                "--variant=minbase",
                "--include=ca-certificates",
                SUITE,
                part,
                MIRROR,
            ),
            title=f"Debian {SUITE} is unpacked",
        )
        part.rename(self.debian)

    def _install(self, part: Path) -> None:
        remove(part)
        run(("cp", "-a", self.debian, part), title="Debian is copied")
        shutil.copy("/etc/resolv.conf", part / "etc/resolv.conf")
        install = f"apt-get update -qq && apt-get install -y -qq --no-install-recommends {PACKAGES}"
        run(
            (
                "unshare",
                *NAMESPACES[:2],
                "--fork",
                "--kill-child",
                "--mount-proc",
                "chroot",
                part,
                "env",
                "DEBIAN_FRONTEND=noninteractive",
                "sh",
                "-c",
                install,
            ),
            title="Docker is installed",
        )
        (part / "etc/resolv.conf").write_text(f"nameserver {NAMESERVER}\n")
        part.rename(self._root)

    @contextmanager
    def started(self) -> Generator[None]:
        """Run the engine meanwhile, with the last images of an earlier run. One run at a time has the cache."""
        with (self.cache / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StepFailed(f"another run uses {self.cache}; wait for it, or set HUBBUB_PEERS") from None
            _remove_cgroups(self._cgroup)
            self._log.unlink(missing_ok=True)
            engine = network = None
            try:
                engine = self._begin(
                    "unshare",
                    *NAMESPACES,
                    "--fork",
                    "--kill-child",
                    "--propagation",
                    "private",
                    "sh",
                    HERE / "engine.sh",
                    self._root,
                    self._store,
                    self._tree,
                    self.contexts,
                    f"/{self._cgroup}",
                )
                self._first = self._find_first(engine)
                self._namespace = str(Path(f"/proc/{self._first}/ns/pid").readlink())
                network = self._begin(
                    *self._slirp(), "--configure", "--mtu=65520", "--disable-host-loopback", str(self._first), "tap0"
                )
                self._wait_ready(engine)
                self._forget_containers()
                yield
            finally:
                for process in filter(None, (engine, network)):
                    process.kill()
                    process.wait()
                self._wait_gone()
                _remove_cgroups(self._cgroup)

    def _begin(self, *words: str | Path) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                ("setpriv", "--pdeathsig", "KILL", *words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _slirp(self) -> tuple[str | Path, ...]:
        """Return how the engine's slirp4netns is run outside of it, with its own libraries."""
        (loader,) = {each.resolve() for each in self._root.glob("usr/lib*/ld-linux*.so.*")}
        (libraries,) = self._root.glob("usr/lib/*-linux-gnu")
        return (loader, "--library-path", libraries, self._root / "usr/bin/slirp4netns")

    def _find_first(self, engine: subprocess.Popen[bytes]) -> int:
        deadline = time.monotonic() + READY_S
        while engine.poll() is None and time.monotonic() < deadline:
            if children := Path(f"/proc/{engine.pid}/task/{engine.pid}/children").read_text().split():
                return int(children[0])
            time.sleep(0.05)
        raise StepFailed(f"namespaces cannot be made here: {self._log.read_text()[-500:]}")

    def _wait_ready(self, engine: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + READY_S
        while engine.poll() is None and time.monotonic() < deadline:
            if Path("/proc", str(self._first), "root", "run/docker.sock").exists():
                self.run("docker", "version", limit_s=READY_S)
                return
            time.sleep(0.1)
        raise StepFailed(f"Docker does not start: {self._log.read_text()[-500:]}")

    def _forget_containers(self) -> None:
        if containers := self.run("docker", "ps", "--all", "--quiet").split():
            self.run("docker", "rm", "--force", "--volumes", *containers)
        for kind in (("volume", "prune", "--all"), ("network", "prune"), ("image", "prune")):
            self.run("docker", *kind, "--force")
        self.run("docker", "builder", "prune", "--force", "--keep-storage", MOST_LAYERS)

    def inside(self, *words: str | Path, env: Mapping[str, str] | None = None) -> list[str]:
        """Return the command that runs another one in the engine's namespaces and file system."""
        variables = [f"{name}={value}" for name, value in (env or {}).items()]
        path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        enter = [
            "nsenter",
            "--target",
            str(self._first),
            "--mount",
            "--pid",
            "--net",
            "--ipc",
            "--uts",
            "--root",
            "--wd=/",
        ]
        return [*enter, "env", "-i", path, "HOME=/tmp", *variables, *map(str, words)]

    def run(
        self,
        *words: str | Path,
        title: str = "",
        env: Mapping[str, str] | None = None,
        given: str | None = None,
        limit_s: float = LIMIT_S,
        stdin: IO[bytes] | None = None,
    ) -> str:
        """Run a command there."""
        title = title or " ".join(map(str, words[:2]))
        return run(self.inside(*words, env=env), title=title, given=given, limit_s=limit_s, stdin=stdin)

    def on_its_network(self, *words: str | Path) -> str:
        """Run a program of this machine where the published ports are."""
        return run(["nsenter", "--target", str(self._first), "--net", *map(str, words)], limit_s=60)

    def find_leftovers(self) -> list[str]:
        """Return what is still there of the engine: mounts, cgroups, and processes in its namespace."""
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        left = [each for each in mounts if Path(each).is_relative_to(self.cache)]
        return left + self._find_processes() + [str(each) for each in _find_cgroups(self._cgroup)]

    def _find_processes(self) -> list[str]:
        found: list[str] = []
        for namespace in Path("/proc").glob("[0-9]*/ns/pid"):
            with suppress(OSError):
                if str(namespace.readlink()) == self._namespace:
                    found.append(f"process {namespace.parts[2]}")
        return found

    def _wait_gone(self) -> None:
        """Wait for the processes of the namespace, which the kernel kills after its first one."""
        deadline = time.monotonic() + READY_S
        while self._find_processes() and time.monotonic() < deadline:
            time.sleep(0.1)


def _find_cgroups(name: str) -> list[Path]:
    top = Path("/sys/fs/cgroup")
    return [each for each in (top / name, *top.glob(f"*/{name}")) if each.is_dir()]


def _remove_cgroups(name: str) -> None:
    """Remove the engine's cgroups, which stay when it is killed. Their last processes may take a moment to end."""
    deadline = time.monotonic() + READY_S
    for top in _find_cgroups(name):
        folders = [Path(folder) for folder, _, _ in os.walk(top, topdown=False)]
        for folder in folders:
            while True:
                try:
                    folder.rmdir()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise StepFailed(f"{folder} cannot be removed: processes are in it") from None
                    time.sleep(0.1)


def remove(folder: Path) -> None:
    """Remove a folder, if it is there."""
    if folder.exists():
        shutil.rmtree(folder)


@contextmanager
def _empty(folder: Path) -> Generator[None]:
    remove(folder)
    folder.mkdir(parents=True)
    yield
