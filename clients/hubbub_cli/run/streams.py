"""The standard streams of a run, which name their failures, and the check of its arguments.

Every run imports this module first, so it does without the library: `--help` needs no gRPC.
"""

import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

import typer

if TYPE_CHECKING:
    from hubbub_client.errors import HubbubError

STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


class _Stdout:
    """stdout, with named failures. A pipe that nobody reads any more is BrokenPipeError and no failure."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, and return its length. Raises HubbubError, BrokenPipeError."""
        # Typer writes an empty text to learn what a stream takes. A full disk refuses even that, and Typer ignores the
        # failure.
        if text == "":
            return 0
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _make_output_error(error) from None

    def flush(self) -> None:
        """Flush what was written. Raises HubbubError, BrokenPipeError."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _make_output_error(error) from None


class _Stderr(_Stdout):
    """stderr, whose own failures are ignored: there is nobody to tell."""

    def write(self, text: str) -> int:
        """Write a text, and return its length, also if it is lost since nobody reads it: the command goes on."""
        try:
            return self._stream.write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        """Flush what was written; what cannot be written is discarded, here and from now on."""
        try:
            self._stream.flush()
        except OSError:
            discard_output(2)


def _make_output_error(error: OSError) -> "HubbubError":
    """Return the error for a stdout that cannot be written, and discard what is still to be written."""
    from grpc import StatusCode  # lazy, as everything of the library here

    from hubbub_client.errors import HubbubError

    discard_output(1)
    message = f"stdout cannot be written: {error.strerror}"
    return HubbubError(message, reason="OUTPUT_FAILED", code=StatusCode.DATA_LOSS)


def discard_output(descriptor: int) -> None:
    """Discard what is still to be written to a descriptor, so that the interpreter does not fail on it when it ends."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, descriptor)
    os.close(null_device)


def take_over_stdout() -> int:
    """Return a descriptor of the real stdout; whatever is printed from now on goes to stderr."""
    sys.stdout.flush()
    own_stdout = os.dup(1)
    os.dup2(2, 1)
    return own_stdout


def open_missing_streams() -> None:
    """Open stdin, stdout and stderr if the command was started without them; writing to one opened here fails.

    So no file that is opened later gets the number of such a stream, and the output. Then stdout and stderr are
    replaced by streams whose failures are named, or for stderr ignored.
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


def say(line: str) -> None:
    """Print a line of this program's own text. Text of others goes through `output.say`."""
    sys.stdout.write(f"{line}\n")


def check_utf8(words: list[str]) -> None:
    """Raise BadParameter for an argument that is not UTF-8: no name, id or text of the API can hold it."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise typer.BadParameter(f"{word!a} is not UTF-8") from None
