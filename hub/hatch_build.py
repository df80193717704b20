"""The pages about errors, which the distribution `hubbub` has beside its packages."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGES, PLACE = "docs/errors", "hubbub_frontend/errors"
"""Where the pages of `hubbub explain` are written, and where the wheel has them."""


class Pages(BuildHookInterface[Any]):
    """Adds them to what is built to be installed elsewhere."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds."""
        if version != "editable":
            pages = sorted((Path(self.root) / PAGES).glob("*.md"))
            build_data["force_include"] |= {str(page): f"{PLACE}/{page.name}" for page in pages}
