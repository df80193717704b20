"""`hubbubd`, also as `python -m hubbubd`."""

import gc
import sys


def main() -> None:
    """Runs the daemon with the process's arguments and exits with its status."""
    # Imports make hardly anything but what stays: looking for garbage meanwhile is a tenth of their time. `run` goes on
    # to collect, once all of it is there.
    gc.disable()
    from hubbubd.app import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
