"""The command `hubbub`."""

import gc
import os
import signal
import sys


def main() -> None:
    """Runs the command line; exits 0 when done, 1 when refused, failed or unreachable, 2 on wrong usage."""
    # What is there before a command begins stays to its end: looking through it for garbage is an eighth of a run.
    # Once the global options are known (`app.options`), it is looked for as ever.
    gc.freeze()
    gc.disable()
    # gRPC's own lines about failed handshakes; what is to be known of them is in the error.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        # A shell starts background jobs with SIGINT ignored; a watch there must end on it all the same.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from hubbub_cli import ends

        ends.open_streams()
    except KeyboardInterrupt:
        sys.exit(1)
    own = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    try:
        ends.check_words(sys.argv[1:])
        from hubbub_cli.app import app

        status = app(standalone_mode=False, prog_name="hubbub")
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 - every end has a line and a status
        status = ends.end(error, as_json="--json" in own)
    sys.exit(status if isinstance(status, int) else 0)
