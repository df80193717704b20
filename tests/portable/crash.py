"""`tests/e2e/crash.py` on a played Mac: `python -m tests.portable.crash --kills 100` (or `make portable`)."""

from . import plugin  # noqa: F401 - before anything of the product

if __name__ == "__main__":
    import sys

    import anyio

    from ..e2e.crash import main

    sys.exit(anyio.run(main))
