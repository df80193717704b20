"""How packages are added to the environment that this program is installed in."""

import re
import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "hubbub"


def command_for(extra: str) -> str:
    """Return the command that adds the packages of an extra of Hubbub, which is in no package index itself."""
    from importlib.metadata import PackageNotFoundError, requires  # imported late: a hub that starts needs neither

    try:
        listed = requires(DISTRIBUTION) or ()
    except PackageNotFoundError:  # run from a folder, not installed
        listed = ()
    return command_to_add(_packages(listed, extra) or [f"{DISTRIBUTION}[{extra}]"], Path(sys.prefix))


def command_to_add(packages: Sequence[str], environment: Path) -> str:
    """Return the command that adds packages to an environment, by what has made it: pipx, uv, or venv."""
    python = str(environment / "bin" / "python")
    if (environment / "pipx_metadata.json").exists():
        words = ["pipx", "inject", environment.name]
    elif (environment / "uv-receipt.toml").exists() or find_spec("pip") is None:
        words = ["uv", "pip", "install", "--python", python]
    else:
        words = [python, "-m", "pip", "install"]
    return shlex.join([*words, *packages])


def _packages(listed: Sequence[str], extra: str) -> list[str]:
    """Return the requirements of an extra, without their markers (core metadata, Requires-Dist)."""
    split = ((name.strip(), marker) for name, _, marker in (each.partition(";") for each in listed))
    return [name for name, marker in split if re.search(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]", marker)]
