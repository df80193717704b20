"""The command `hubbub`."""

import gc
import os
import signal
import sys

INTERRUPTED = 130
"""Typer's status for SIGINT while a command is imported, or runs and asks no hub. `hubbub` exits with 1 instead."""


def main() -> None:
    """Run the command line; exit 0 when done, 1 when refused, failed or unreachable, 2 on wrong usage."""
    # Objects made before a command begins stay to its end, and collecting them costs an eighth of a run. So garbage
    # collection begins when the global options are known (`app.options`).
    gc.freeze()
    gc.disable()
    # gRPC's own lines about failed handshakes are noise: the error has the reason.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        # A shell starts background jobs with SIGINT ignored; a watch there must end on SIGINT all the same.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from hubbub_cli.run import streams
        from hubbub_cli.syntax import bounds

        streams.open_missing_streams()
        bounds.clamp_terminal_size()
    except KeyboardInterrupt:
        sys.exit(1)
    sys.exit(run_command_line(sys.argv[1:]))


def run_command_line(words: list[str]) -> int:
    """Run a command line, and return its exit status. Raises SystemExit when it completes a word for a shell."""
    from hubbub_cli.run import streams

    try:
        streams.check_utf8(words)
        from hubbub_cli.app import app

        status = app(words, standalone_mode=False, prog_name="hubbub")
        if status == INTERRUPTED:
            status = 1
        sys.stdout.flush()
    except SystemExit:  # the completion of a word for a shell ends with it
        raise
    except BaseException as error:  # noqa: BLE001 - every end has a line and a status
        from hubbub_cli.run import exit_status  # imported late: a run that succeeds does not need it
        from hubbub_cli.syntax import root_options  # imported late, as above

        status = exit_status.report_error(error, as_json=root_options.wants_json(words))
    return status if isinstance(status, int) else 0  # a command that is done returns None
