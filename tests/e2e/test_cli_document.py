"""Every command there is, with its example, its options and its place in docs/cli.md."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from ..command_tree import whole

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs/cli.md").read_text()
# Documented elsewhere.
ELSEWHERE = {"tui"}


def commands(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield path.strip(), command
        return
    for name, each in below.items():
        yield from commands(each, f"{path} {name}")


ALL = dict(commands(whole()))


def test_each_command_has_an_example_and_a_place_in_the_document() -> None:
    for name, command in ALL.items():
        assert command.epilog.startswith(f"Example: hubbub {name}")
        group, _, last = name.rpartition(" ")
        if name not in ELSEWHERE:
            assert re.search(rf"\b{name}\b", DOCUMENT) or (group in DOCUMENT and f"`{last}`" in DOCUMENT), name


def _choices(parameter: Any) -> tuple[str, ...]:
    annotation = parameter.type_descriptor.annotation
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def row(name: str, command: Any) -> str:
    """The line of a command in the table at the end of the document."""
    arguments, options = list[str](), list[str]()
    for each in command.params:
        shown = each.metavar or "/".join(_choices(each)) or each.opts[0].strip("-").upper()
        if each.param_type_name == "argument":
            arguments.append(shown if each.required else f"[{shown}]")
        elif not each.hidden:
            flag = getattr(each, "is_flag", False)
            option = (each.secondary_opts or each.opts)[0] if flag and each.default is True else each.opts[0]
            options.append(f"`{option}`" if flag else f"`{option} {shown}`")
    cells = " | ".join([f"`{' '.join([name, *arguments])}`", ", ".join(options)])
    return f"| {cells} |"


def test_the_table_of_the_document_has_each_command_with_its_arguments_and_options_and_no_other() -> None:
    table = re.findall(r"^\| `.*\|$", DOCUMENT.partition("## Every command")[2], re.MULTILINE)
    assert set(table) == {row(name, command) for name, command in ALL.items()}
