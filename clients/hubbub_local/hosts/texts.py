"""Translates the texts of a host's entry to the hub's form, with the references in them, and checks their bounds."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from hubbub_local.hosts.servers import FoundServer, References
from hubbub_local.secrecy import find_secret_reason

MAX_ITEMS: Final = 1000
"""The most arguments, variables or headers of an entry."""

MAX_TEXT: Final = 64 * 1024
"""The longest text of an entry, in characters."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE: Final = re.compile(rf"({_NAME.pattern})(:-.*)?", re.DOTALL)
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
_REFERENCE_FORMS: Final[Mapping[References, re.Pattern[str]]] = {
    "shell": _REFERENCE,
    "editor": _REFERENCE,
    "dollar": re.compile(rf"\$\{{([^{{}}]*)\}}|\$({_NAME.pattern})"),
    "braces": re.compile(r"\{((?:env|file):[^{}]*)\}"),
}
"""What a reference looks like to hosts of each kind; the groups match what is inside."""


_HOSTS_NAMING_VARIABLES: Final = frozenset({"copilot-cli"})
"""Hosts that take a value of `env` for the name of a variable, if such a variable is set, and use its value."""


class UntranslatableEntry(Exception):
    """The entry cannot be a server of the hub; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPrompt:
    """A value that a person has to give once; in a spec it is `${input:ID}` until then."""

    id: str
    prompt: str
    secret: bool
    default: str | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEnvironment:
    """What the texts of an entry may refer to. `read` returns the variables of a file, and raises ValueError."""

    home: Path
    environ: Mapping[str, str]
    read: Callable[[Path], Mapping[str, str]]
    platform: str = "linux"

    @property
    def separator(self) -> str:
        """The separator of the parts of a path."""
        return "\\" if self.platform == "win32" else "/"


class Texts:
    """The texts of one entry. Collects notes and what a person must give. All methods raise UntranslatableEntry."""

    def __init__(self, found: FoundServer, environment: TextEnvironment) -> None:
        self._found = found
        self._environment = environment
        self.variables: Mapping[str, str] = {}
        """Variables of the entry itself, in the hub's form."""

        self.notes: list[str] = []
        self.asks: dict[str, InputPrompt] = {}

    def translate_text(self, text: str, key: str) -> str:
        """Return a text of the host in the hub's form; `key` names it in errors and prompts."""
        form = _REFERENCE_FORMS.get(self._found.place.references)
        if form is None:
            return escape(text)
        found: list[str] = []
        end = 0
        for match in form.finditer(text):
            inside = next((each for each in match.groups() if each is not None), "")
            found += [escape(text[end : match.start()]), self._translate_reference(inside, key)]
            end = match.end()
        return "".join([*found, escape(text[end:])])

    def translate_env_value(self, text: str, name: str) -> str:
        """Return the value of an entry's variable in the hub's form; some hosts let it be another variable's name."""
        if (
            self._found.place.host in _HOSTS_NAMING_VARIABLES
            and text in self._environment.environ
            and _NAME.fullmatch(text)
        ):
            return self.translate_variable(text, None, name)
        return self.translate_text(text, name)

    def translate_path(self, text: str, key: str) -> str:
        """Return a path of the host in the hub's form, absolute and without `..`.

        A path with a reference (`${...}`) is only translated, since the value of the reference is not known here.
        """
        path = self.translate_text(text, key)
        if re.search(r"(?<!\$)\$\{", path):
            return path
        plain = Path(self.resolve_plain_text(path, key)).expanduser()
        folder = self._found.place.folder
        if folder is None and not plain.is_absolute():
            raise UntranslatableEntry(f"its {key} {text!r} is relative to the folder that the host is started in")
        return escape(os.path.normpath((folder or Path()) / plain))

    def resolve_plain_text(self, text: str, key: str) -> str:
        """Return the plain text of a text in the hub's form, which must not refer to anything."""
        if re.search(r"(?<!\$)\$\{", text):
            raise UntranslatableEntry(f"its {key} refers to something that is not known yet")
        return text.replace("$${", "${")

    def translate_variable(self, name: str, default: str | None, key: str) -> str:
        """Return what stands for a variable in the hub's form; `key` names what it is used for.

        That is the variable's value if the entry sets the variable; a reference if this program's environment has the
        variable, or there is a `default` (written `:-TEXT`); else a prompt to a person.
        """
        check_variable(name)
        if name in self.variables:
            return self.variables[name]
        if default is not None or name in self._environment.environ:
            if default is None:
                self.notes.append(f"reads the variable {name} of the hub's environment")
            return f"${{{name}{default or ''}}}"
        secret = any(find_secret_reason(each, "a value") is not None for each in (name, key))
        return self.request_value(name, f"{name} (a variable that is not set here)", secret=secret)

    def request_value(
        self, name: str, prompt: str, *, secret: bool, default: str | None = None, choices: tuple[str, ...] = ()
    ) -> str:
        """Add a prompt for a value that a person has to give, and return the reference to it."""
        self.asks.setdefault(name, InputPrompt(id=name, prompt=prompt, secret=secret, default=default, choices=choices))
        return f"${{input:{name}}}"

    def _translate_reference(self, body: str, key: str) -> str:
        """Return a reference of the host, given by the text within it, in the hub's form; plain text if it is none."""
        match self._found.place.references:
            case "editor":
                return self._translate_editor_reference(body, key)
            case "braces":
                return self._translate_braces(body, key)
            case _:
                variable = _VARIABLE.fullmatch(body)
                return (
                    self.translate_variable(variable[1], variable[2], key)
                    if variable is not None
                    else escape(f"${{{body}}}")
                )

    def _translate_braces(self, body: str, key: str) -> str:
        """Return what `{env:VAR}` or `{file:PATH}` is in the hub's form."""
        kind, _, rest = body.partition(":")
        if kind == "env":
            return self.translate_variable(rest, None, key)
        path = os.path.normpath(self._found.place.file.parent / Path(rest).expanduser())
        if re.search(r"[{}]", path):
            raise UntranslatableEntry(f"its {key} refers to a file whose path has braces")
        return f"${{file:{path}}}"

    def _translate_editor_reference(self, body: str, key: str) -> str:
        """Return what `${BODY}` of VS Code and its kin is in the hub's form."""
        folder = self._found.place.folder
        kind, _, rest = body.partition(":")
        match kind:
            case "env" if variable := _VARIABLE.fullmatch(rest):
                return self.translate_variable(variable[1], None, key)
            case "input" if rest in self._found.inputs:
                return self._translate_input(rest)
            case "userHome":
                return escape(str(self._environment.home))
            case "pathSeparator" | "/":
                return self._environment.separator
            case "workspaceFolder" | "workspaceRoot" if folder is not None:
                return escape(str(folder))
            case "workspaceFolderBasename" if folder is not None:
                return escape(folder.name)
            case _ if kind.startswith("workspace"):
                raise UntranslatableEntry(
                    f"${{{body}}} in {key} depends on the folder that is open; import it from the folder"
                )
            case _:
                raise UntranslatableEntry(f"${{{body}}} in {key} is known to the editor alone")

    def _translate_input(self, name: str) -> str:
        """Return a reference to an input of VS Code in the hub's form, and request its value."""
        about = self._found.inputs[name]
        if about.get("type") == "command":
            raise UntranslatableEntry(f"${{input:{name}}} is what a command of the editor says")
        options = about.get("options")
        listed = cast("list[object]", options) if isinstance(options, list) else []
        choices = [cast("dict[str, Any]", each).get("value") if isinstance(each, dict) else each for each in listed]
        default = about.get("default")
        prompt = str(about.get("description") or name)[:200]
        secret = about.get("password") is True or find_secret_reason(name, "a value") is not None
        texts = tuple(each for each in choices if isinstance(each, str))
        return self.request_value(
            name, prompt, secret=secret, default=default if isinstance(default, str) else None, choices=texts
        )


def escape(text: str) -> str:
    """Return a text in the hub's form, with nothing in it taken for a reference."""
    return text.replace("${", "$${")


def check_variable(name: str) -> None:
    """Raise UntranslatableEntry for what cannot be the name of a variable."""
    if not _NAME.fullmatch(name):
        raise UntranslatableEntry(f"{name!r} is no name of a variable")


def check_text(value: object, key: str) -> str:
    """Return a value as text: a text, a number or a boolean. Raises UntranslatableEntry for other values."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value) if isinstance(value, int | float) else value
    if not isinstance(text, str):
        raise UntranslatableEntry(f"its {key} is no text")
    if len(text) > MAX_TEXT:
        raise UntranslatableEntry(f"its {key} is too long")
    if "\0" in text:
        raise UntranslatableEntry(f"its {key} has a NUL")
    if _SURROGATE.search(text):
        raise UntranslatableEntry(f"its {key} has half a character, which no file can have")
    return text


def check_texts(value: object, key: str) -> list[str]:
    """Return a list of values as texts. Raises UntranslatableEntry for other values."""
    if not isinstance(value, list):
        raise UntranslatableEntry(f"its {key} is no list")
    items = cast("list[object]", value)
    if len(items) > MAX_ITEMS:
        raise UntranslatableEntry(f"its {key} is too long")
    return [check_text(each, key) for each in items]


def check_table(value: object, key: str) -> dict[str, str]:
    """Return a table of values as texts by name; null is an empty table. Leave out values that are null.

    Raises UntranslatableEntry.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UntranslatableEntry(f"its {key} is no table")
    named = cast("dict[object, object]", value)
    if len(named) > MAX_ITEMS:
        raise UntranslatableEntry(f"its {key} is too long")
    return {
        check_text(name, key): check_text(each, f"{key} {name}") for name, each in named.items() if each is not None
    }
