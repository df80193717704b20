"""Values of the command line that are plain, read without pydantic.

Typer makes a pydantic adapter for each parameter, also for one that is not given: that is a fifth of the processor time
of a short run. What is not plain, and what is wrong, is left to Typer.
"""

import re
from typing import Any

# What Python and pydantic read as the same number.
PLAIN_NUMBERS: dict[Any, re.Pattern[str]] = {
    int: re.compile(r"0|[1-9][0-9]{0,8}"),
    float: re.compile(r"(0|[1-9][0-9]{0,8})(\.[0-9]{1,9})?"),
}


class PlainValues:
    """Reads the values of one parameter in place of Typer's own reader, the result of its `get_runtime_param`."""

    def __init__(self, param: Any) -> None:
        self._make_runtime_param = param.get_runtime_param

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        """Return the value as the command gets it.

        Plain values are read here, to save the time in which Typer builds its own reader. All others, and numbers out
        of bounds, go to Typer's reader, which raises BadParameter.
        """
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        annotation = param.type_descriptor.annotation
        is_text = annotation is str and type(value) is str
        is_default = type(value) is type(param.default) and value == param.default
        if is_text or is_default:
            return value
        if annotation in (list[str], list[Any]) and all(type(text) is str for text in value):
            return [*value]
        if annotation in PLAIN_NUMBERS and type(value) is str and PLAIN_NUMBERS[annotation].fullmatch(value):
            number = annotation(value)
            low, high = param.type_descriptor.parameter_info.min, param.type_descriptor.parameter_info.max
            if (low is None or number >= low) and (high is None or number <= high):
                return number
        return self._make_runtime_param().coerce(value, param=param, ctx=ctx)


def read_plain_values(param: Any) -> None:
    """Have a parameter of Typer read plain values without pydantic."""
    if "get_runtime_param" not in vars(param):
        plain = PlainValues(param)
        param.get_runtime_param = lambda: plain
