"""What the distribution `hubbub` has beside its packages: the library in its own version, the pages about errors, and
the stubs of what is between members of a fleet.

The library is a distribution of its own. An installation for development (`pip install -e .`) has both from this
repository, as it has all the rest.
"""

from pathlib import Path
from typing import Any, cast

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGES, PLACE = "docs/errors", "hubbub_frontend/errors"
"""Where the pages of `hubbub explain` are written, and where the wheel has them."""

STUBS, BESIDE = "protos/hubbub/fleet", "hubbub/fleet"
"""The same of the stubs: beside those of the API, which the library has."""


class Beside(BuildHookInterface[Any]):
    """Adds them to what is built to be installed elsewhere."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds."""
        if version != "editable":
            build_data["dependencies"].append(f"hubbub-client=={cast('Any', self).metadata.version}")
            pages = sorted((Path(self.root) / PAGES).glob("*.md"))
            build_data["force_include"][str(Path(self.root) / STUBS)] = BESIDE
            build_data["force_include"] |= {str(page): f"{PLACE}/{page.name}" for page in pages}
