"""`hubbubd`, also as `python -m hubbubd`."""

import sys

from hubbubd.app import run


def main() -> None:
    """Runs the daemon with the process's arguments and exits with its status."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
