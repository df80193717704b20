"""`hubbubd`, also as `python -m hubbubd`."""

import gc
import os
import sys


def main() -> None:
    """Runs the daemon with the process's arguments and exits with its status."""
    # Read when gRPC is imported: else each stranger whose handshake fails adds a line of gRPC's own to the log.
    os.environ["GRPC_VERBOSITY"] = os.environ.get("GRPC_VERBOSITY", "ERROR")
    # Imports make hardly anything but what stays: looking for garbage meanwhile is a tenth of their time. `run` goes on
    # to collect, once all of it is there.
    gc.disable()
    from hubbubd.app import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
