"""`hubbubd`, also as `python -m hubbubd`."""

import gc
import os
import sys


def main() -> None:
    """Runs the daemon with the process's arguments and exits with its status."""
    # Read when gRPC is imported: else each stranger whose handshake fails adds a line of gRPC's own to the log.
    os.environ["GRPC_VERBOSITY"] = os.environ.get("GRPC_VERBOSITY", "ERROR")
    # What imports make stays for ever: looking through it for garbage, again and again, is a tenth of their time.
    gc.disable()
    # Started without a stdout or a stderr, it writes to nowhere.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - pathlib is not needed yet; to the end of the process
    from hubbubd.app import run

    gc.freeze()
    gc.enable()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
