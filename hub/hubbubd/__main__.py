"""Entry point of `hubbubd` and `python -m hubbubd`."""

import gc
import os
import sys
from importlib import import_module
from types import ModuleType
from typing import cast

from hubbub_shared import platform

NOT_ON_WINDOWS = (
    "hubbubd: the hub does not run on Windows itself: install it in WSL (`wsl --install`), and reach it from here with"
    " `hubbub --address HOST:PORT`"
)

SKIPPED_MODULES = ("greenlet", "rich")
"""What structlog imports if it can, and the hub does not use: rich would take 4 MB and 30 ms, greenlet 1 MB."""


def main() -> None:
    """Run the daemon with the process's arguments and exit with its status."""
    if platform.NAME == "win32":
        sys.exit(NOT_ON_WINDOWS)
    # Must be set before gRPC is imported: otherwise gRPC logs a line for each failed TLS handshake.
    os.environ["GRPC_VERBOSITY"] = os.environ.get("GRPC_VERBOSITY", "ERROR")
    # What imports create is permanent: collecting garbage meanwhile would take a tenth of their time.
    gc.disable()
    # Started with stdout or stderr closed, write to the null device.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - pathlib is not needed yet; to the end of the process
    for name in SKIPPED_MODULES:
        sys.modules[name] = cast("ModuleType", None)  # an import of it fails, as if it were not installed
    import_module("structlog")
    for name in SKIPPED_MODULES:
        del sys.modules[name]
    from hubbubd.program.app import run

    gc.freeze()
    gc.enable()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
