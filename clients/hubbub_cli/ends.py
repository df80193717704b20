"""Ways in which a run of the command can fail, each as one line and an exit status.

The contract: 0 done; 1 refused, failed or unreachable; 2 wrong usage. With `--json` the last line of stderr is one
object, whatever went wrong. Only HUBBUB_DEBUG shows a traceback.
"""

import os
import sys
import traceback
from typing import Any, TextIO, cast

import typer
from grpc import StatusCode

from hubbub_cli.output import note, print_error
from hubbub_client import numbers
from hubbub_client.errors import HubbubError, InvalidArgument
from hubbub_client.legible import is_text

DEBUG = "HUBBUB_DEBUG"
STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


LARGEST_SIZE = 10_000
"""Columns or lines of a terminal."""


class OutputError(HubbubError):
    """The output cannot be written: stdout is closed, or the disk behind it is full."""

    code = StatusCode.DATA_LOSS


class _Stdout:
    """stdout, with named failures. A pipe that nobody reads any more is BrokenPipeError and no failure."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _lost(error) from None

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _lost(error) from None


class _Stderr(_Stdout):
    """stderr, whose own failures are ignored: there is nobody to tell."""

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            discard(2)


def _lost(error: OSError) -> OutputError:
    discard(1)
    return OutputError(f"stdout cannot be written: {error.strerror}", reason="OUTPUT_FAILED")


def bound_size() -> None:
    """Clamp COLUMNS and LINES, which libraries read as integers however long; drop what is no number."""
    for name in ("COLUMNS", "LINES"):
        size = numbers.whole_text(os.environ.get(name, ""), LARGEST_SIZE)
        if size:
            os.environ[name] = str(size)
        else:
            os.environ.pop(name, None)


def discard(descriptor: int) -> None:
    """Discard unwritten output, so that the interpreter does not fail on it again at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def open_streams() -> None:
    """Open stdin, stdout and stderr if the command was started without them; writing to these fails.

    Then nothing that is opened later can be taken for one of them.
    """
    for descriptor, name, mode in STREAMS:
        if getattr(sys, name) is None:
            # Opened read-only, in the lowest free descriptor, which is this one.
            opened = os.open(os.devnull, os.O_RDONLY)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    sys.stdout, sys.stderr = _Stdout(sys.stdout), _Stderr(sys.stderr)  # pyright: ignore[reportAttributeAccessIssue]


def check_words(words: list[str]) -> None:
    """Raise Usage for an argument that is not UTF-8: no name, id or text of the API can hold it."""
    for word in words:
        if not is_text(word):
            raise typer.BadParameter(f"{word!a} is not UTF-8")


def end(error: BaseException, as_json: bool) -> int:
    """Report what went wrong, and return the exit status. SystemExit passes through."""
    error = first(error)
    match error:
        case HubbubError():
            print_error(error, as_json)
            return 1
        case typer.TyperException():
            print_error(InvalidArgument(error.format_message(), reason="USAGE"), as_json)
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
        case _:
            return _unforeseen(error, as_json)


def first(error: BaseException) -> BaseException:
    """Return the first exception of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _unforeseen(error: BaseException, as_json: bool) -> int:
    """Report a bug of this program."""
    if os.environ.get(DEBUG):
        note("".join(traceback.format_exception(error)))
    words = f"{type(error).__name__}: {error}".rstrip(": ")
    said = f"this command has failed by a fault of its own: {words}; {DEBUG}=1 shows where"
    print_error(HubbubError(said, reason="INTERNAL"), as_json)
    return 1
