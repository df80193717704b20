"""`hubbubd`, also as `python -m hubbubd`."""

import os
import sys

# Read when gRPC is imported: else each stranger whose handshake fails adds a line of gRPC's own to the log.
os.environ["GRPC_VERBOSITY"] = os.environ.get("GRPC_VERBOSITY", "ERROR")

from hubbubd.app import run


def main() -> None:
    """Runs the daemon with the process's arguments and exits with its status."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
