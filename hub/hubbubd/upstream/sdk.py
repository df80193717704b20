"""The SDK without what only servers and whole clients need of it.

`import mcp.shared.message` would run the packages above it first, and these import web servers, their frameworks and
command lines: half of the memory and of the processor time of all imports for a connection.
"""

import importlib.util
import sys
from types import ModuleType
from typing import Any, Final

PACKAGES: Final = ("mcp", "mcp.client")


class _Postponed(ModuleType):
    """A package that is run when something is asked of it that no submodule has put there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.__spec__ is None or self.__spec__.loader is None:
            raise AttributeError(name)
        self.__class__ = ModuleType
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def postpone() -> None:
    """Let the packages of the SDK be run when they are needed themselves, not with their first submodule."""
    for name in PACKAGES:
        if name not in sys.modules and (spec := importlib.util.find_spec(name)) is not None:
            package = sys.modules[name] = importlib.util.module_from_spec(spec)
            package.__class__ = _Postponed
