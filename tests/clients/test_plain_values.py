"""Values of the command line that are read without pydantic are what Typer makes of them, and so are its complaints."""

from collections.abc import Iterator
from typing import Any

from typer import BadParameter
from typer.core import TyperCommand

from hubbub_cli.syntax.plain_values import PlainValues

from ..command_tree import whole

VALUES: tuple[Any, ...] = (None, "", "x", "5", "-1", "007", "1e3", "nan", "open", True, 7, 2.5, (), ("x", "open"))


def parameters(command: Any, path: str = "hubbub") -> Iterator[tuple[Any, Any]]:
    """Each parameter of a command and of those below it, with its command."""
    context = TyperCommand(path).make_context(path, [])
    for each in command.get_params(context):
        yield each, context
    for name, below in getattr(command, "commands", {}).items():
        yield from parameters(below, f"{path} {name}")


def coerce(reader: Any, value: Any, param: Any, context: Any) -> Any:
    """What becomes of a value, with its type, or the complaint."""
    try:
        found = reader.coerce(value, param=param, ctx=context)
    except BadParameter as error:
        return error.format_message()
    return type(found), repr(found)


def test_a_value_becomes_what_typer_makes_of_it() -> None:
    forms: dict[str, tuple[Any, Any]] = {}
    for param, context in parameters(whole()):
        about = param.type_descriptor
        forms[f"{about.annotation} {about.parameter_info.min} {param.default} {param.multiple}"] = param, context
    assert len(forms) > 20
    for param, context in forms.values():
        plain, typers = param.get_runtime_param(), type(param).get_runtime_param(param)
        assert isinstance(plain, PlainValues)
        several = param.multiple or param.nargs == -1
        default = () if callable(param.default) else (param.default,)
        for value in (*VALUES, *default):
            if several and value is not None and not isinstance(value, tuple):
                continue  # Typer's parser gives a tuple
            if not several and isinstance(value, tuple):
                continue
            found = coerce(plain, value, param, context)
            assert found == coerce(typers, value, param, context), (param.opts, value)
