"""Values of the command line: read without pydantic, they are what Typer makes of them, and so are its complaints."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from typer import BadParameter
from typer.core import TyperCommand

from hubbub_cli.syntax.plain_values import Plain

from ..command_tree import whole

TEXTS = ("", "x", "0", "5", "-1", "007", "1_0", " 5", "5.0", "2.50", "1e3", "nan", "inf", "9" * 30, "٣", "true", "open")
VALUES: tuple[Any, ...] = (None, True, 0, 7, -1, 2.5, float("nan"), *TEXTS, (), ("x", "open"), ("5", 5), ["x"])


def parameters(command: Any, path: str = "hubbub") -> Iterator[tuple[str, Any, Any]]:
    """Each parameter of a command and of those below it, with its command."""
    context = TyperCommand(path).make_context(path, [])
    for each in command.get_params(context):
        yield f"{path} {each.opts[0]}", each, context
    for name, below in getattr(command, "commands", {}).items():
        yield from parameters(below, f"{path} {name}")


ALL = {name: (param, context) for name, param, context in parameters(whole())}


def outcome(way: Any, value: Any, param: Any, context: Any) -> Any:
    """What becomes of a value, with its type, or the complaint."""
    try:
        found = way.coerce(value, param=param, ctx=context)
    except BadParameter as error:
        return error.format_message()
    return type(found), repr(found)


@pytest.mark.parametrize("name", ALL)
def test_a_value_becomes_what_typer_makes_of_it(name: str) -> None:
    param, context = ALL[name]
    typers = type(param).get_runtime_param(param)
    default = () if callable(param.default) else (param.default,)
    choices = param.type_descriptor.choices or ()
    about = param.type_descriptor.parameter_info
    around = [end + step for end in (about.min, about.max) if end is not None for step in (-1, 0, 1)]
    for value in (*VALUES, *default, *choices, *around, *map(str, around)):
        assert outcome(param.get_runtime_param(), value, param, context) == outcome(typers, value, param, context), (
            value
        )


@pytest.mark.parametrize("name", ALL)
def test_a_parameter_reads_its_values_by_the_plain_way(name: str) -> None:
    param, _ = ALL[name]
    assert isinstance(param.get_runtime_param(), Plain)
    assert "get_runtime_param().coerce(" in inspect.getsource(type(param).process_value)
