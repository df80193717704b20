"""What the distribution `hubbub` needs of the library: in its own version, from a distribution of its own.

An installation for development (`pip install -e .`) has the library from this repository, as it has all the rest.
"""

from typing import Any, cast

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Library(BuildHookInterface[Any]):
    """Adds the dependency to what is built to be installed elsewhere."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds."""
        if version != "editable":
            build_data["dependencies"].append(f"hubbub-client=={cast('Any', self).metadata.version}")
