"""Bounds of numbers from outside: from options, and from the environment."""

import os

import typer

MOST_S = 1e9
"""Longest time of an option, as for the hub: about 30 years, in seconds."""

MOST = 2**31 - 1
"""Largest `int32` of the API."""

LARGEST_SIZE = "10000"
"""Most columns or lines of a terminal. A number of as many digits is at least as large."""


def finite(value: float | None) -> float | None:
    """Check that a number of seconds is finite: the callback of each option in seconds. Raises BadParameter."""
    if value is not None and not value <= MOST_S:
        raise typer.BadParameter(f"must be a number up to {MOST_S:g}.")
    return value


def bound_size() -> None:
    """Clamp COLUMNS and LINES, which libraries read as integers however long; drop what is no number."""
    for name in ("COLUMNS", "LINES"):
        size = os.environ.get(name, "")
        digits = size.lstrip("0") if size.isascii() and size.isdigit() else ""
        if digits:
            os.environ[name] = digits if len(digits) < len(LARGEST_SIZE) else LARGEST_SIZE
        else:
            os.environ.pop(name, None)
