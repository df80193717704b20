"""What is said below the message of a wrong command line: what was perhaps meant, and how the command is used.

For people only: it stands in notes of the error (PEP 678), which `--json` leaves out.
"""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import typer

MAX_SUGGESTED = 3
MIN_CONTAINED_CHARS = 2
"""Names that contain a word are suggested only if the word has more characters than this."""
# Words of Typer and pydantic, and plainer ones.
PLAINER_MESSAGES = tuple(
    (re.compile(pattern), words)
    for pattern, words in {
        r"Value error, ": "",
        r"Input should be a valid integer.*": "it is not a whole number",
        r"Input should be a valid number.*": "it is not a number",
        r"Input should be greater than or equal to (.*)": r"it must be at least \1",
        r"Input should be less than or equal to (.*)": r"it must be at most \1",
        r"Got unexpected extra argument\(s\) \((.*)\)": r"There are more words than this command takes: \1",
        r"requires an argument\.$": "needs a value.",
    }.items()
)
UNKNOWN_SERVER_OPTION = re.compile(r"a server has no option '([^']*)'")
NOT_ONE_OF = re.compile(r"'([^']*)' is not one of (.*)")

# Words that other programs have for what is called otherwise here.
OTHER_WORDS = {
    "add": "servers add",
    "answer": "inbox answer",
    "ask": "inbox list",
    "claim": "inbox claim",
    "connect": "servers connect",
    "disconnect": "servers disconnect",
    "errors": "explain",
    "list": "servers list",
    "login": "whoami",
    "ls": "servers list",
    "prompts": "catalog prompts",
    "ps": "calls list",
    "questions": "inbox list",
    "remove": "servers remove",
    "requests": "inbox list",
    "resources": "catalog resources",
    "rm": "servers remove",
    "run": "call",
    "server": "servers",
    "show": "inbox show",
    "start": "up -d",
    "stop": "down",
    "tool": "call",
    "tools": "catalog tools",
    "version": "--version",
    "watch": "inbox watch",
}
# The same within a group, which has one of these.
OTHER_WORDS_OF_GROUPS = {
    "create": ("add",),
    "delete": ("remove", "revoke"),
    "get": ("show",),
    "ls": ("list",),
    "rm": ("remove", "revoke"),
    "show": ("get",),
}


def find_close_names(word: str, known_names: Iterable[str]) -> list[str]:
    """Return the known names that are spelled like a word, the closest first, then those that contain the word.

    MAX_SUGGESTED at most; the word itself is left out.
    """
    names = list(dict.fromkeys(known_names))
    lowered = {name.lower(): name for name in names}
    matches = [lowered[each] for each in get_close_matches(word.lower(), lowered, n=MAX_SUGGESTED)]
    containing = [name for name in names if len(word) > MIN_CONTAINED_CHARS and word.lower() in name.lower()]
    return [name for name in dict.fromkeys((*matches, *containing)) if name != word][:MAX_SUGGESTED]


def format_did_you_mean(names: Sequence[str]) -> str:
    """Return the question whether one of these names was meant; empty for no names."""
    return f"did you mean {' or '.join(names)}?" if names else ""


def add_notes(error: BaseException, *notes: str) -> None:
    """Add notes to an error, without the empty ones."""
    for note in filter(None, notes):
        error.add_note(note)


class Failed(typer.Exit):
    """The command has failed, and has printed what failed: exit 1, and print no error."""

    def __init__(self) -> None:
        super().__init__(1)


def make_plain_message(error: Any) -> str:
    """Return the message of an error in plainer words, without Typer's own suggestions."""
    # An error about an unknown option has its suggestions apart, and a plain message.
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        return error.message
    message = error.format_message().partition(" Did you mean ")[0]
    for pattern, words in PLAINER_MESSAGES:
        message = pattern.sub(words, message)
    return message


def add_usage_notes(error: Any) -> None:
    """Add to the error of a wrong command line what was perhaps meant, how the command is used, and where more is.

    If only a command is missing, the help of the group is added instead.
    """
    context = error.ctx
    if context is None:
        add_notes(error, "help: hubbub --help")
        return
    path = context.command_path
    if error.message == "Missing command.":
        add_notes(error, "", context.get_help())
        return
    if suggestions := _suggest_names(error, context):
        add_notes(error, format_did_you_mean(suggestions))
    if not hasattr(context.command, "commands"):
        usage = " ".join(context.command.collect_usage_pieces(context))
        add_notes(error, f"usage: {path} {usage}")
    add_notes(error, f"help: {path} --help")


def _suggest_names(error: Any, context: Any) -> Sequence[str]:
    """Return the options, commands or values that a wrong word was perhaps meant to be."""
    if option := getattr(error, "option_name", None):
        known = [name for each in context.command.get_params(context) for name in each.opts]
        full_names = {name.removeprefix("--"): name for name in known if name.startswith("--")}
        return (  # if the option exists, its value is wrong, and not its name
            [] if option in known else [full_names[each] for each in find_close_names(option.lstrip("-"), full_names)]
        )
    if (word := getattr(error, "command_word", None)) is not None:
        return _suggest_commands(word, context)
    if unknown := UNKNOWN_SERVER_OPTION.search(error.message):
        from hubbub_client.data.specs import KEYS  # imported late, since it imports gRPC

        return find_close_names(unknown[1], KEYS)
    wrong_choice = NOT_ONE_OF.search(error.format_message())
    return find_close_names(wrong_choice[1], re.findall(r"[^\s,']+", wrong_choice[2])) if wrong_choice else []


def _suggest_commands(word: str, context: Any) -> list[str]:
    """Return the commands that a wrong word was perhaps meant to be, each as a whole line with `hubbub`.

    Words that other programs have for a command come first.
    """
    known, name = context.command.commands, word.lower()
    if context.parent is None:
        elsewhere = [OTHER_WORDS[name]] if name in OTHER_WORDS else []
    else:
        elsewhere = [each for each in OTHER_WORDS_OF_GROUPS.get(name, ()) if each in known]
    return [f"{context.command_path} {each}" for each in dict.fromkeys((*elsewhere, *find_close_names(word, known)))]
