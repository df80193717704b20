"""The command `hubbub`."""

import gc
import os
import signal
import sys

import typer

from hubbub_client.cli.output import print_error
from hubbub_client.errors import HubbubError, InvalidArgument


def main() -> None:
    """Runs the command line; exits 0 when done, 1 when refused, failed or unreachable, 2 on wrong usage."""
    # What is there before a command begins stays to its end: looking through it for garbage is an eighth of a run.
    # Once the global options are known (`app.options`), it is looked for as ever.
    gc.freeze()
    gc.disable()
    from hubbub_client.cli.app import app

    # A shell starts background jobs with SIGINT ignored; a watch there must end on it all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # gRPC's own lines about failed handshakes; what is to be known of them is in the error.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    own = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    as_json = "--json" in own
    try:
        status = app(standalone_mode=False, prog_name="hubbub")
    except HubbubError as error:
        print_error(error, as_json)
        sys.exit(1)
    except typer.TyperException as error:
        print_error(InvalidArgument(error.format_message(), reason="USAGE"), as_json)
        sys.exit(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)
