"""The images: those of the hub from its Dockerfile as it is, and those that stand for images of a registry."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import yaml

from .machine import Machine, remove
from .report import StepFailed

TREE: Final = Path("/srv/tree")
"""The repository, inside."""
CONTEXTS: Final = Path("/srv/contexts")
"""What is made to be built from, inside."""
STANDING: Final = TREE / "tests/containers/images"
STANDS_FOR: Final = {
    "alpine/socat": "socat",
    "grafana/grafana": "listener",
    "jaegertracing/jaeger": "listener",
    "otel/opentelemetry-collector": "collector",
    "postgres": "postgres",
    "prom/prometheus": "prometheus",
}
"""Which file makes what stands for an image."""
LEFT_OUT: Final = ("var/cache/apt/archives/*.deb", "var/cache/apt/*.bin", "var/lib/apt/lists/*", "usr/share/doc/*",
                   "usr/share/man/*", "usr/share/locale/*", "usr/share/info/*", "var/log/*", "proc/*", "dev/*",
                   "var/cache/ldconfig/*", "var/cache/debconf/*-old")  # fmt: skip
"""What Debian's own image, the slim one, does not have either."""


def find_interpreter(wanted: str) -> tuple[Path, str]:
    """Return the folder and the version of a CPython of this machine whose version begins so, such as 3.12."""
    home = Path.home()
    folders = [*home.glob(f".pyenv/versions/{wanted}*"), *home.glob(f".local/share/uv/python/cpython-{wanted}*")]
    found = [str(folder / "bin/python3") for folder in sorted(folders, reverse=True)]
    for program in (*found, shutil.which(f"python{wanted}"), sys.executable):
        if program is None:
            continue
        asked = "import sys, platform; print(sys.base_prefix, platform.python_version())"
        answered = subprocess.run((program, "-I", "-c", asked), capture_output=True, text=True, check=False)
        prefix, _, version = answered.stdout.strip().rpartition(" ")
        if answered.returncode == 0 and version.startswith(f"{wanted}.") and prefix not in {"/usr", "/usr/local"}:
            return Path(prefix), version
    raise StepFailed(f"the images' base needs a CPython {wanted} in a folder of its own: uv python install {wanted}")


def build_debian(machine: Machine) -> None:
    """Make the image of Debian itself."""
    words = [
        "tar",
        "-C",
        str(machine.debian),
        "--numeric-owner",
        *(f"--exclude=./{each}" for each in LEFT_OUT),
        "-c",
        ".",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as packed:
        machine.run("docker", "import", "--change", 'CMD ["bash"]', "-", "debian:trixie-slim", stdin=packed.stdout)


def build_python(machine: Machine, tree: Path) -> tuple[str, str]:
    """Make the image that hub/Dockerfile begins with; its name, and the version that stands for it."""
    (base,) = set(re.findall(r"^FROM (python:\S+)", (tree / "hub/Dockerfile").read_text(), re.MULTILINE))
    prefix, version = find_interpreter(".".join(base.removeprefix("python:").split(".")[:2]))
    context = machine.contexts / "python"
    remove(context)
    interpreter = context / "interpreter"
    (interpreter / "bin").mkdir(parents=True)
    minor = version.rpartition(".")[0]
    left_out = shutil.ignore_patterns("site-packages", "test", "tests", "__pycache__", "config-3.*")
    for name in ("python", "python3", f"python{minor}"):
        shutil.copy2(prefix / "bin" / name, interpreter / "bin" / name, follow_symlinks=False)
    shutil.copytree(
        prefix / "lib" / f"python{minor}", interpreter / f"lib/python{minor}", symlinks=True, ignore=left_out
    )
    for library in prefix.glob("lib/libpython*.so*"):
        shutil.copy2(library, interpreter / "lib" / library.name, follow_symlinks=False)
    shutil.copy2("/etc/ssl/certs/ca-certificates.crt", context / "ca-certificates.crt")
    build(machine, base, STANDING / "python.Dockerfile", context=CONTEXTS / "python")
    return base, version


def build(machine: Machine, name: str, file: Path, *, context: str | Path = TREE, target: str = "") -> None:
    """Build an image."""
    chosen = ("--target", target) if target else ()
    words = ("docker", "build", "--quiet", "--file", file, *chosen, "--tag", name, context)
    machine.run(*words, title=f"{name} is built")


def find_size(machine: Machine, name: str) -> float:
    """Return the size of an image in MB, unpacked, as `docker images` counts."""
    return int(machine.run("docker", "image", "inspect", "--format", "{{.Size}}", name)) / 1e6


def build_standing(machine: Machine, tree: Path) -> list[str]:
    """Make an image of each name that the files of Compose would fetch; the names of those that only listen."""
    named = {
        service["image"]
        for file in ("docker-compose.yml", "docker-compose.fleet.yml")
        for service in yaml.safe_load((tree / file).read_text())["services"].values()
        if not service["image"].endswith(":local")
    }
    for name in sorted(named):
        build(machine, name, STANDING / f"{STANDS_FOR[name.partition(':')[0]]}.Dockerfile", context=STANDING)
    return sorted(name for name in named if STANDS_FOR[name.partition(":")[0]] == "listener")


def build_before(machine: Machine, tree: Path, commit: str, name: str) -> None:
    """Build the hub of an earlier commit, from its own Dockerfile."""
    context = machine.contexts / "before"
    remove(context)
    context.mkdir(parents=True)
    with subprocess.Popen(("git", "-C", tree, "archive", commit), stdout=subprocess.PIPE) as packed:
        unpacked = subprocess.run(("tar", "-C", context, "-x"), stdin=packed.stdout, check=False)
    if packed.returncode or unpacked.returncode:
        raise StepFailed(f"git has no commit {commit}: give one with --before, in a clone with its history")
    inside = CONTEXTS / "before"
    build(machine, name, inside / "hub/Dockerfile", context=inside)


def run_tools(machine: Machine) -> str:
    """Have npx and uvx fetch a program onto the volume, and run it; their versions."""
    certificates = "/etc/ssl/certs/ca-certificates.crt"
    trust = [f"--env={name}={certificates}" for name in ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE")]
    confined = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--memory", "1g", "--entrypoint", "sh")
    script = "npx --yes semver 1.2.3 && uvx --from build pyproject-build --version && node --version && uv --version"
    shown = machine.run("docker", "run", "--rm", *confined, *trust, "hubbub:tools", "-c", script, title="npx and uvx")
    (node,) = re.findall(r"^v(\S+)$", shown, re.MULTILINE)
    (uv,) = re.findall(r"^uv (\S+)", shown, re.MULTILINE)
    if "1.2.3" not in shown:
        raise StepFailed(f"npx did not run the program: {shown}")
    return f"Node.js {node}, uv {uv}"
