"""Entry point of `hubbubd` and `python -m hubbubd`."""

import gc
import os
import sys
from importlib import import_module
from types import ModuleType
from typing import cast


def main() -> None:
    """Run the daemon with the process's arguments and exit with its status."""
    # Must be set before gRPC is imported: otherwise gRPC logs a line for each failed TLS handshake.
    os.environ["GRPC_VERBOSITY"] = os.environ.get("GRPC_VERBOSITY", "ERROR")
    # What imports create is permanent: collecting garbage meanwhile would take a tenth of their time.
    gc.disable()
    # Started with stdout or stderr closed, write to the null device.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - pathlib is not needed yet; to the end of the process
    # structlog imports rich if it can, to colour tracebacks that the hub prints as text: 4 MB and 30 ms.
    sys.modules["rich"] = cast("ModuleType", None)  # forbids the import
    import_module("structlog")
    del sys.modules["rich"]
    from hubbubd.app import run

    gc.freeze()
    gc.enable()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
