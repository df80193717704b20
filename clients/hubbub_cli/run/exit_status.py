"""Ways in which a run of the command can fail, each as one line and an exit status.

The contract: 0 done; 1 refused, failed or unreachable; 2 wrong usage. With `--json` the last line of stderr is one
object, whatever went wrong. Only HUBBUB_DEBUG shows a traceback.
"""

import os
import traceback
from typing import cast

import typer

from hubbub_cli.output.printer import note, print_error, print_usage_error
from hubbub_cli.run.streams import discard_output

DEBUG = "HUBBUB_DEBUG"


def report_error(error: BaseException, as_json: bool) -> int:
    """Report what went wrong, and return the exit status. SystemExit passes through."""
    error = find_first_exception(error)
    match error:
        case typer.TyperException():
            print_usage_error(error, error.format_message(), as_json)
            return error.exit_code
        case typer.Exit():
            return error.exit_code
        case typer.Abort() | KeyboardInterrupt():
            return 1
        case BrokenPipeError():  # nobody reads the output any more
            discard_output(1)
            return 1
        case SystemExit():
            raise error
        case ModuleNotFoundError(name=str(name)) if not name.startswith("hubbub"):
            return _report_missing_package(name, as_json)
        case _:
            return _report_failure(error, as_json)


def find_first_exception(error: BaseException) -> BaseException:
    """Return the first exception of a group, also of a group within it; any other exception as it is."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _report_missing_package(package: str, as_json: bool) -> int:
    """Report that a package is not installed beside this program, and return the exit status."""
    message = (
        f"this command needs the package {package}, which is not there: install Hubbub again, with all that it needs"
    )
    print_usage_error(typer.TyperException(message), message, as_json)
    return 1


def _report_failure(error: BaseException, as_json: bool) -> int:
    """Report an error of the library, or a fault of this program, and return the exit status.

    With HUBBUB_DEBUG a fault of this program is reported with its traceback.
    """
    from hubbub_client.errors import HubbubError  # imported late, since it imports gRPC

    if isinstance(error, HubbubError):
        print_error(error, as_json)
        return 1
    if os.environ.get(DEBUG):
        note("".join(traceback.format_exception(error)))
    description = f"{type(error).__name__}: {error}".rstrip(": ")
    message = f"this command has failed by a fault of its own: {description}; {DEBUG}=1 shows where"
    print_error(HubbubError(message, reason="INTERNAL"), as_json)
    return 1
