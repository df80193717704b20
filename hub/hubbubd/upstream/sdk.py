"""The SDK without what only servers and whole clients need of it.

`import mcp.shared.message` would run the packages above it first, and these import web servers, their frameworks and
command lines: half of the memory and of the processor time of all imports for a connection.
"""

import importlib.util
import sys
from functools import partial
from types import ModuleType
from typing import Any, Final

PACKAGES: Final = ("mcp", "mcp.client")


def defer_packages() -> None:
    """Have the SDK's packages run when an attribute of theirs is used, and not when a submodule is imported."""
    for name in PACKAGES:
        if name not in sys.modules and (spec := importlib.util.find_spec(name)) is not None:
            package = sys.modules[name] = importlib.util.module_from_spec(spec)
            vars(package)["__getattr__"] = partial(_load_attribute, package)


def _load_attribute(package: ModuleType, name: str) -> Any:
    """Run a deferred package, and return an attribute of it. Until it is run, this is its `__getattr__` (PEP 562).

    Raises AttributeError, and runs nothing, for names that begin with two underscores.
    """
    if name.startswith("__") or package.__spec__ is None or package.__spec__.loader is None:
        raise AttributeError(name)
    del vars(package)["__getattr__"]
    package.__spec__.loader.exec_module(package)
    return getattr(package, name)
