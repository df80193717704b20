"""Ways in which a run of the command can fail, each as one line and an exit status.

The contract: 0 done; 1 refused, failed or unreachable; 2 wrong usage. With `--json` the last line of stderr is one
object, whatever went wrong. Only HUBBUB_DEBUG shows a traceback.
"""

import os
import traceback
from typing import cast

import typer

from hubbub_cli.output.printer import note, print_error, print_usage
from hubbub_cli.run.streams import discard

DEBUG = "HUBBUB_DEBUG"


def end(error: BaseException, as_json: bool) -> int:
    """Report what went wrong, and return the exit status. SystemExit passes through."""
    error = first(error)
    match error:
        case typer.TyperException():
            print_usage(error, error.format_message(), as_json)
            return error.exit_code
        case typer.Exit():
            return error.exit_code
        case typer.Abort() | KeyboardInterrupt():
            return 1
        case BrokenPipeError():
            discard(1)
            return 1
        case SystemExit():
            raise error
        case ModuleNotFoundError(name=str(name)) if not name.startswith("hubbub"):
            return _incomplete(name, as_json)
        case _:
            return _failed(error, as_json)


def first(error: BaseException) -> BaseException:
    """Return the first exception of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _incomplete(package: str, as_json: bool) -> int:
    """Report that a package is not installed beside this program."""
    words = (
        f"this command needs the package {package}, which is not there: install Hubbub again, with all that it needs"
    )
    print_usage(typer.TyperException(words), words, as_json)
    return 1


def _failed(error: BaseException, as_json: bool) -> int:
    """Report an error of the library, or a bug of this program."""
    from hubbub_client.errors import HubbubError  # imported late, since it imports gRPC

    if isinstance(error, HubbubError):
        print_error(error, as_json)
        return 1
    if os.environ.get(DEBUG):
        note("".join(traceback.format_exception(error)))
    words = f"{type(error).__name__}: {error}".rstrip(": ")
    said = f"this command has failed by a fault of its own: {words}; {DEBUG}=1 shows where"
    print_error(HubbubError(said, reason="INTERNAL"), as_json)
    return 1
