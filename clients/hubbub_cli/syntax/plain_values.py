"""Values of the command line that need no conversion, taken without pydantic.

Typer makes a pydantic adapter for each parameter, also for one that is not given: that is a fifth of the processor time
of a short run. What has to be converted or checked is left to Typer.
"""

from typing import Any


class PlainValues:
    """Reads the values of one parameter, in place of what `get_runtime_param` of Typer's parameters returns."""

    def __init__(self, param: Any) -> None:
        self._make_runtime_param = param.get_runtime_param

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        """Return the value as the command gets it. Raises BadParameter."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        annotation = param.type_descriptor.annotation
        is_text = annotation is str and type(value) is str
        is_default = type(value) is type(param.default) and value == param.default
        if is_text or is_default:
            return value
        if annotation == list[str] and all(type(text) is str for text in value):
            return [*value]
        return self._make_runtime_param().coerce(value, param=param, ctx=ctx)


def read_plain_values(param: Any) -> None:
    """Let a parameter of Typer take plain values as they are."""
    if "get_runtime_param" not in vars(param):
        plain = PlainValues(param)
        param.get_runtime_param = lambda: plain
