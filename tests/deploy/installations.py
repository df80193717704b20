"""Each way in which somebody installs Hubbub, in an empty home, with what it costs.

    python -m tests.deploy.installations

From a clone, an archive of the repository, the source archive and wheels in a folder without an index; by pipx, uv,
uvx and pip. Prints a line for each: the seconds of the processor, the size of the environment on the disk, and the
longest time for which nothing was said. Exits with 1 if one fails, or takes more than the bounds of first_contact.py.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from .distributions import SURROUNDINGS, build, copy
from .first_contact import Failed, Home, cost, fresh, say_cost

UV = Path(sys.executable).parent / "uv"


def installed(home: Home) -> str:
    """Both commands of an environment say their versions."""
    return " ".join(home.run(home.bin / name, "--version").strip() for name in ("hubbub", "hubbubd"))


def by_pipx(home: Home, source: Path) -> str:
    """`pipx install SOURCE`."""
    return say_cost(cost(home, home.pipx, "install", source))


def by_uv(home: Home, source: Path) -> str:
    """`uv tool install SOURCE`."""
    return say_cost(cost(home, UV, "tool", "install", source))


def by_uvx(home: Home, source: Path) -> str:
    """`uvx --from SOURCE hubbub --help`, which leaves no command."""
    said = home.run(UV.with_name("uvx"), "--from", source, "hubbub", "--help")
    if "Usage" not in said or (home.bin / "hubbub").exists():
        raise Failed(said)
    return "shows the help"


def by_pip_without_an_index(home: Home, source: Path) -> str:
    """A wheel and what it needs, collected in a folder, installed where no index can be asked."""
    environment, folder = home.path / "env", home.path / "wheels"
    home.run(home.python, "-m", "venv", environment)
    pip = environment / "bin/pip"
    home.run(pip, "wheel", "--quiet", "--use-pep517", "--wheel-dir", folder, f"{source}[all]")
    home.environ = {name: text for name, text in home.environ.items() if not name.startswith("PIP_")}
    home.run(pip, "--isolated", "install", "--no-index", "--find-links", folder, "hubbub[all]")
    home.bin = environment / "bin"
    return f"{len([*folder.iterdir()])} wheels, {installed(home)}"


WAYS: tuple[tuple[str, str, Callable[[Home, Path], str]], ...] = (
    ("clone", "pipx", by_pipx),
    ("clone", "uv", by_uv),
    ("clone", "uvx", by_uvx),
    ("archive", "pipx", by_pipx),
    ("archive", "uv", by_uv),
    ("sdist", "uv", by_uv),
    ("wheel", "pip", by_pip_without_an_index),
)


@contextmanager
def sources() -> Generator[dict[str, Path]]:
    """What is installed from."""
    with tempfile.TemporaryDirectory(prefix="installations-") as temporary:
        work = Path(temporary)
        clone, built = work / "hubbub", work / "built"
        copy(clone, SURROUNDINGS[0])
        archive = work / "hubbub-main.tar.gz"
        subprocess.run(["tar", "-czf", archive, "-C", work, clone.name], check=True)
        for target in ("sdist", "wheel"):
            build(clone, target, built, SURROUNDINGS[0])
        (sdist,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
        yield {"clone": clone, "archive": archive, "sdist": sdist, "wheel": wheel}


def main() -> int:
    """Tries each way; returns the exit status."""
    failed = 0
    with sources() as found:
        for of, by, way in WAYS:
            with fresh(keep=False) as home:
                try:
                    said = way(home, found[of])
                    if way in (by_pipx, by_uv):
                        said = f"{said}; {installed(home)}"
                except (Failed, OSError, subprocess.SubprocessError) as error:
                    failed, said = 1, f"FAILED  {error}"
                print(f"{of:8} {by:5} {said}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
