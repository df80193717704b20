"""Sources as syntax trees, for the tests that hold a rule over all of them."""

import ast
from functools import cache
from pathlib import Path


@cache
def tree(path: Path) -> ast.Module:
    """The tree of a file, parsed once however many tests look at it; nobody changes it."""
    return ast.parse(path.read_bytes())
