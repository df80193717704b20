"""How packages are added to the environment that this program is installed in."""

import re
import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "hubbub"


def command_for_extra(extra: str) -> str:
    """Return the command that adds the packages of an extra of Hubbub, which is in no package index itself."""
    from importlib.metadata import PackageNotFoundError, requires  # imported late: a hub that starts needs neither

    try:
        listed = requires(DISTRIBUTION) or ()
    except PackageNotFoundError:  # run from a folder, not installed
        listed = ()
    return command_to_add(_packages_of_extra(listed, extra) or [f"{DISTRIBUTION}[{extra}]"], Path(sys.prefix))


def command_to_add(packages: Sequence[str], environment: Path) -> str:
    """Return the command that adds packages to an environment, by what has made it: pipx, uv, or venv."""
    python = str(environment / "bin" / "python")
    if (environment / "pipx_metadata.json").exists():
        command = ["pipx", "inject", environment.name]
    elif (environment / "uv-receipt.toml").exists() or find_spec("pip") is None:
        command = ["uv", "pip", "install", "--python", python]
    else:
        command = [python, "-m", "pip", "install"]
    return shlex.join([*command, *packages])


def _packages_of_extra(listed: Sequence[str], extra: str) -> list[str]:
    """Return the requirements of an extra, without their markers (core metadata, Requires-Dist)."""
    of_extra = re.compile(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]")
    found: list[str] = []
    for requirement in listed:
        package, _, marker = requirement.partition(";")
        if of_extra.search(marker):
            found.append(package.strip())
    return found
