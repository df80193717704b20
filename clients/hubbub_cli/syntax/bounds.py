"""Bounds of numbers from outside: from options, and from the environment."""

import os

import typer

MAX_SECONDS = 1e9
"""Longest time of an option, as for the hub: about 30 years, in seconds."""

MAX_INT32 = 2**31 - 1
"""Largest `int32` of the API."""

MAX_TERMINAL_SIZE = "10000"
"""Most columns or lines of a terminal. A number of as many digits is at least as large."""


def check_seconds(value: float | None) -> float | None:
    """Return a number of seconds as it is. Typer calls this for the value of an option, None without the option.

    Raises BadParameter for more than MAX_SECONDS, and for NaN. A number that is too small is refused by the option's
    `min`.
    """
    if value is not None and not value <= MAX_SECONDS:  # not `>`, which is false for NaN
        raise typer.BadParameter(f"must be a number up to {MAX_SECONDS:g}.")
    return value


def clamp_terminal_size() -> None:
    """Set COLUMNS and LINES to MAX_TERMINAL_SIZE where they are larger, and unset them where they are no number.

    Libraries read these variables of the environment as integers, however long.
    """
    for name in ("COLUMNS", "LINES"):
        size = os.environ.get(name, "")
        digits = size.lstrip("0") if size.isascii() and size.isdigit() else ""
        if digits:
            os.environ[name] = digits if len(digits) < len(MAX_TERMINAL_SIZE) else MAX_TERMINAL_SIZE
        else:
            os.environ.pop(name, None)
