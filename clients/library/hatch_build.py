"""Where the packages of the library are: in the repository above this folder, and in a source archive inside it."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = {
    "clients/hubbub_client": "hubbub_client",
    "hub/hubbub_shared": "hubbub_shared",
    "protos/hubbub/__init__.py": "hubbub/__init__.py",
    "protos/hubbub/py.typed": "hubbub/py.typed",
    "protos/hubbub/v1": "hubbub/v1",
}
"""What is between members of a fleet (`hubbub/fleet`) is not among them: only the distribution `hubbub` has it."""


class Packages(BuildHookInterface[Any]):
    """Adds them; an editable installation has folders instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds."""
        if version == "editable":
            return
        # An archive has them in the folders of the repository: so both make the same wheel, in the same order.
        here = Path(self.root)
        above = here if (here / "protos").is_dir() else here.parents[1]
        for folder, name in PACKAGES.items():
            build_data["force_include"][str(above / folder)] = folder if self.target_name == "sdist" else name
