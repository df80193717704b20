"""The options of the root, accepted anywhere: before the command, after it, and between its arguments.

Each command and group takes them over from the root, but those of which it has one of the same name. A value that is
found there becomes the root's, so the commands themselves know nothing of this. After `--` there are no options.
"""

import copy
from collections.abc import Iterable, Sequence
from typing import Any, cast

JSON = "json"
OUTPUT, OUTPUTS = ("-o", "--output"), (JSON, "text")


def copy_root_options(command: Any, ctx: Any, own_params: Sequence[Any]) -> list[Any]:
    """Return copies of the root's options for a command, without those that the command has itself.

    None for the root itself, and for a command that runs without a root.
    """
    root = ctx.find_root()
    if root.command is command or not getattr(root.command, "shares_options", False):
        return []
    own_names = {name for each in own_params for name in each.opts}
    return [
        _copy_for_command(each)
        for each in root.command.params
        if _may_follow_command(each) and own_names.isdisjoint(each.opts)
    ]


def _may_follow_command(param: Any) -> bool:
    """Return whether an option of the root may also stand after the command: not --help nor --version."""
    return param.param_type_name == "option" and param.expose_value


def _copy_for_command(param: Any) -> Any:
    """Return a copy of a root's option for a command; a value that is given to the copy becomes the root's."""
    shared = copy.copy(param)
    # A name with a blank can be that of no parameter of the command.
    shared.name, shared.expose_value, shared.of_root = f"root {param.name}", False, param.name
    shared.callback = _pass_value_to_root
    shared.checked_by = param.callback
    return shared


def is_from_root(param: Any) -> bool:
    """Return whether a command has this option from the root."""
    return hasattr(param, "of_root")


def _pass_value_to_root(ctx: Any, param: Any, value: Any) -> Any:
    """Set the root's option to a value that stands after the command, and make the settings of this run again.

    A value that is not on the command line, such as a default, changes nothing.
    """
    source = ctx.get_parameter_source(param.name)
    if source is None or source.name != "COMMANDLINE":
        return value
    value = param.checked_by(ctx, param, value) if param.checked_by else value
    root = ctx.find_root()
    root.params[param.of_root] = value
    if root.obj is not None:  # there is none while a shell completes
        settings: Any = cast("Any", type(root.obj)).from_params(root.params)
        each = ctx
        while each is not None:
            each.obj, each = settings, each.parent
    return value


def wants_json(words: Iterable[str]) -> bool:
    """Return whether a command line asks for JSON output, also if Typer cannot parse it: the error is JSON, too."""
    wanted, output, previous = False, None, ""
    for word in words:
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if word == "--json":
            wanted = True
        elif previous in OUTPUT:
            output = word
        elif name in OUTPUT and equals:
            output = value
        elif word.startswith("-o") and word[2:] in OUTPUTS:
            output = word[2:]
        previous = word
    return output == JSON if output in OUTPUTS else wanted
