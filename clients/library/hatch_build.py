"""Where the packages of the library are: beside this folder in the repository, and inside it in a source archive."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = {
    "hubbub_client": "../hubbub_client",
    "hubbub_shared": "../../hub/hubbub_shared",
    "hubbub/v1": "../../protos/hubbub/v1",
    "hubbub/__init__.py": "../../protos/hubbub/__init__.py",
    "hubbub/py.typed": "../../protos/hubbub/py.typed",
}
"""What is between members of a fleet (`hubbub/fleet`) is not among them: only the distribution `hubbub` has it."""


class Packages(BuildHookInterface[Any]):
    """Adds them; an editable installation has folders instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds."""
        if version != "editable" and not (Path(self.root) / "hubbub_client").is_dir():
            build_data["force_include"] |= {path: name for name, path in PACKAGES.items()}
