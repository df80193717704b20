"""Values of the command line, read without pydantic where they are plain.

Typer makes a pydantic adapter for each parameter, also for one that is not given: that is a quarter of a short run.
What is not plain, and what is wrong, is left to Typer, so that its words stay the same.
"""

import re
from collections.abc import Sequence
from typing import Any, cast

# What Python and pydantic read as the same number.
WHOLE = re.compile(r"(0|[1-9][0-9]{0,8})")
DECIMAL = re.compile(r"(0|[1-9][0-9]{0,8})(\.[0-9]{1,9})?")


class Plain:
    """Reads the values of one parameter, in place of what `get_runtime_param` of Typer's parameters returns."""

    def __init__(self, param: Any) -> None:
        self._of_typer = param.get_runtime_param

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        """Return the value as the command gets it. Raises BadParameter, in Typer's words."""
        of, several = param.type_descriptor, param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        if of.parameter_info.parser is None:
            found = _texts(of, value) if several else _one(of, value)
            if found is not None:
                return found
        return self._of_typer().coerce(value, param=param, ctx=ctx)


def lighten(param: Any) -> None:
    """Let a parameter of Typer read plain values as here."""
    if "get_runtime_param" not in vars(param):
        plain = Plain(param)
        param.get_runtime_param = lambda: plain


def _texts(of: Any, value: Any) -> list[str] | None:
    """Return the texts of a repeatable parameter; None if Typer must look at it, as in the next two."""
    if of.annotation == list[str] and isinstance(value, (list, tuple)):
        texts = [*cast("Sequence[Any]", value)]
        return texts if all(type(each) is str for each in texts) else None
    return None


def _one(of: Any, value: Any) -> Any:
    """Return the value of a text, a number or a choice."""
    if of.annotation is str:
        return value if type(value) is str else None
    if of.annotation in (int, float):
        return _number(of, value)
    return value if type(value) is str and of.is_choice and value in of.choices else None


def _number(of: Any, value: Any) -> int | float | None:
    kind: Any = of.annotation
    plain = type(value) is str and (WHOLE if kind is int else DECIMAL).fullmatch(value)
    number: Any = kind(value) if plain else value
    low, high = of.parameter_info.min, of.parameter_info.max
    within = type(number) is kind and (low is None or number >= low) and (high is None or number <= high)
    return number if within else None
