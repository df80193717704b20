"""How packages are added to the environment that this program is installed in."""

import re
import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "hubbub"


def make_extra_install_command(extra: str) -> str:
    """Return the shell command that installs an extra's packages by name: Hubbub itself is in no package index."""
    from importlib.metadata import PackageNotFoundError, requires  # imported late: only error messages need it

    try:
        requirements = requires(DISTRIBUTION) or ()
    except PackageNotFoundError:  # run from a folder, not installed
        requirements = ()
    return make_install_command(
        _list_extra_packages(requirements, extra) or [f"{DISTRIBUTION}[{extra}]"], Path(sys.prefix)
    )


def make_install_command(packages: Sequence[str], environment: Path) -> str:
    """Return the shell command that installs packages in an environment, by its tool: pipx, uv or pip."""
    python = str(environment / "bin" / "python")
    if (environment / "pipx_metadata.json").exists():
        command = ["pipx", "inject", environment.name]
    elif (environment / "uv-receipt.toml").exists() or find_spec("pip") is None:
        command = ["uv", "pip", "install", "--python", python]
    else:
        command = [python, "-m", "pip", "install"]
    return shlex.join([*command, *packages])


def _list_extra_packages(requirements: Sequence[str], extra: str) -> list[str]:
    """Return those of the package's requirements (core metadata, Requires-Dist) of an extra, without markers."""
    extra_marker = re.compile(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]")
    packages: list[str] = []
    for requirement in requirements:
        package, _, marker = requirement.partition(";")
        if extra_marker.search(marker):
            packages.append(package.strip())
    return packages
