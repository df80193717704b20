"""An entry of a host as a server of the hub: its spec, and what could not be taken over, with the reason.

Pure, but for files of variables, which it is given a function to read.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, Final, cast
from urllib.parse import urlsplit

from hubbub_local.host_servers import Entry, Found
from hubbub_local.hosts import NAME
from hubbub_local.secrecy import replaced, secrets, why_secret

MAX_TEXT: Final = 64 * 1024
"""The longest text of an entry, in characters."""

MAX_ITEMS: Final = 1000
"""The most arguments, variables or headers of an entry."""

MAX_NOTES: Final = 20
MAX_NOTE: Final = 300
"""The most notes on a server, and the longest, in characters."""

TRANSPORTS: Final[Mapping[str, str]] = {
    "stdio": "stdio",
    "local": "stdio",
    **dict.fromkeys(("http", "streamable-http", "streamableHttp", "streamable_http", "remote"), "http"),
    "sse": "sse",
}
"""The hub's transport by what hosts call it."""

# What hosts keep for themselves: nothing is lost without it.
_THEIRS: Final = frozenset(
    {
        *("alwaysAllow", "autoApprove", "description", "dev", "gallery", "icon", "timeout", "version", "name", "title"),
        *("startup_timeout_sec", "startup_timeout_ms", "tool_timeout_sec", "required", "supports_parallel_tool_calls"),
        *("bundled", "display_name", "source", "enabled", "disabled", "type", "transport", "transportType", "note"),
    }
)
_SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "command": ("command", "cmd"),
    "url": ("url", "serverUrl", "uri", "httpUrl"),
    "env": ("env", "envs"),
    "headers": ("headers", "http_headers"),
}
_ALLOWED: Final = ("enabled_tools", "available_tools")
_DENIED: Final = ("disabled_tools", "disabledTools")
_OTHERS: Final = frozenset(
    {"args", "cwd", "envFile", "env_keys", "env_vars", "env_http_headers", "bearer_token_env_var", *_ALLOWED, *_DENIED}
)
_KNOWN: Final = _THEIRS | _OTHERS | {name for names in _SOURCES.values() for name in names}

_REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE: Final = re.compile(rf"({_NAME.pattern})(:-.*)?", re.DOTALL)
_ASKED: Final = re.compile(r"(?<!\$)\$\{input:([^{}]*)\}")
_HALF: Final = re.compile(r"[\ud800-\udfff]")
_NAMED: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class NotTaken(Exception):
    """The entry cannot be a server of the hub; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A value that a person has to give once; in a spec it is `${input:ID}` until then."""

    id: str
    prompt: str
    secret: bool
    default: str | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A found server as one of the hub. `spec` has keys of a configuration file; None if it cannot be taken over."""

    found: Found
    name: str
    spec: Mapping[str, Any] | None
    notes: tuple[str, ...] = ()
    asks: tuple[Ask, ...] = ()
    disabled: bool = False

    @property
    def transport(self) -> str:
        """The transport, for people; empty if it cannot be taken over."""
        if self.spec is None:
            return ""
        return str(self.spec.get("transport", "http" if "url" in self.spec else "stdio"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Surround:
    """What the texts of an entry may refer to. `read` returns the variables of a file, and raises ValueError."""

    home: Path
    environ: Mapping[str, str]
    read: Callable[[Path], Mapping[str, str]]
    platform: str = "linux"

    @property
    def separator(self) -> str:
        """What is between the parts of a path."""
        return "\\" if self.platform == "win32" else "/"


def imported(found: Found, around: Surround) -> Imported:
    """Return a found server as one of the hub."""
    name = _name(found.name)
    taking = _Taking(found, around)
    try:
        spec = taking.spec()
    except NotTaken as exc:
        return Imported(found=found, name=name, spec=None, notes=(_cut(str(exc)),), disabled=taking.disabled)
    notes = taking.notes
    if name != found.name:
        notes = [*notes, f"there it is called {found.name!r}"]
    return Imported(
        found=found,
        name=name,
        spec=spec,
        notes=tuple(dict.fromkeys(map(_cut, notes)))[:MAX_NOTES],
        asks=tuple(taking.asks.values()),
        disabled=taking.disabled,
    )


def is_hub(each: Imported) -> bool:
    """Return whether it is Hubbub itself, which is no server of its own."""
    entry = each.found.entry
    command = entry.get("command", entry.get("cmd"))
    args = entry.get("args")
    words = [command, *(cast("list[object]", args) if isinstance(args, list) else [])]
    names = [PureWindowsPath(word).stem for word in words if isinstance(word, str)]  # of paths of either kind
    return each.found.name == NAME or (NAME in names and "mcp" in names)


def answered(each: Imported, values: Mapping[str, str]) -> Imported:
    """Return it with the values (in the hub's form) that a person gave, by id; the others stay asked for."""

    def put(text: str) -> str:
        return _ASKED.sub(lambda match: values.get(match[1], match[0]), text)

    if each.spec is None:
        return each
    spec = {key: _each(value, put) for key, value in each.spec.items()}
    return replace(each, spec=spec, asks=tuple(ask for ask in each.asks if ask.id not in values))


def named_apart(several: list[Imported], taken: Mapping[str, object]) -> list[Imported]:
    """Return them with names that are all different, and none that is taken: a host's name after it, or a number."""
    used = set(taken)
    apart: list[Imported] = []
    for each in several:
        options = (each.name, _name(f"{each.name[:48]}-{each.found.place.host}"))
        numbered = (f"{each.name[:56]}-{number}" for number in count(2))
        name = next(option for option in chain(options, numbered) if option not in used)
        used.add(name)
        apart.append(replace(each, name=name))
    return apart


def literal(text: str) -> str:
    """Return a text in the hub's form that stands for itself."""
    return text.replace("${", "$${")


class _Taking:
    """One entry on its way."""

    def __init__(self, found: Found, around: Surround) -> None:
        self._found = found
        self._around = around
        self._own: Mapping[str, str] = {}
        self.notes: list[str] = []
        self.asks: dict[str, Ask] = {}
        entry = found.entry
        self.disabled = entry.get("disabled") is True or entry.get("enabled") is False

    def spec(self) -> dict[str, Any]:
        """Return the spec. Raises NotTaken."""
        entry = self._flat(self._found.entry)
        given = {key: next((entry[name] for name in names if name in entry), None) for key, names in _SOURCES.items()}
        kind = self._transport(entry, given)
        self._env_names(entry)
        spec = self._stdio(entry, given) if kind == "stdio" else self._http(entry, given, kind)
        for key, names in (("allow_tools", _ALLOWED), ("deny_tools", _DENIED)):
            tools = next((entry[name] for name in names if entry.get(name)), None)
            if tools is not None:
                # Names there, patterns here.
                spec[key] = [re.sub(r"([*?[])", r"[\1]", text) for text in self._texts(tools, key)]
        # The names in YAML need not be texts.
        for key in sorted(map(str, entry.keys() - _KNOWN)):
            self.notes.append(f"{key!r} is not taken over")
        return spec

    def _flat(self, entry: Entry) -> Entry:
        """Return an entry whose command is a text: Zed also had a table."""
        command = entry.get("command")
        if isinstance(command, dict):
            parts = cast("dict[str, Any]", command)
            within = {("command" if key == "path" else key): value for key, value in parts.items()}
            return {**entry, "command": None, **within}
        if "command" not in entry and entry.get("source") == "extension":
            raise NotTaken("an extension of the editor starts it, with a command that only the editor knows")
        return entry

    def _transport(self, entry: Entry, given: Mapping[str, Any]) -> str:
        kind = entry.get("type", entry.get("transport", entry.get("transportType")))
        if kind is None:
            if given["command"]:
                return "stdio"
            if not given["url"]:
                raise NotTaken("it has neither a command nor a url")
            path = urlsplit(str(given["url"])).path if _is_url(given["url"]) else ""
            return "sse" if path.rstrip("/").endswith("/sse") else "http"
        if not isinstance(kind, str) or kind not in TRANSPORTS:
            raise NotTaken(f"the hub has no transport {kind!r}")
        return TRANSPORTS[kind]

    def _stdio(self, entry: Entry, given: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(given["command"], str) or not given["command"].strip():
            raise NotTaken("its command is no text")
        spec: dict[str, Any] = {"command": self._text(self._one(given["command"], "command"), "command")}
        if args := self._texts(entry.get("args") or [], "args"):
            spec["args"] = [self._text(each, "args") for each in args]
        env = self._variables(entry)
        env |= {name: self._text(text, name) for name, text in self._table(given["env"], "env").items()}
        for name in self._texts(self._passed(entry.get("env_vars")), "env_vars"):
            env[name] = self._variable(name, None, name)
        if env:
            spec["env"] = env
        if entry.get("cwd") is not None:
            spec["cwd"] = self._text(self._one(entry["cwd"], "cwd"), "cwd")
        elif self._found.place.folder is not None:
            spec["cwd"] = literal(str(self._found.place.folder))
        return spec

    def _http(self, entry: Entry, given: Mapping[str, Any], kind: str) -> dict[str, Any]:
        url = self._text(self._one(given["url"], "url"), "url")
        if not _is_url(url) and not url.startswith("${"):
            raise NotTaken("its url does not begin with http:// or https://")
        if "@" in urlsplit(url).netloc if _is_url(url) else False:
            raise NotTaken("its url has a user and a password; put them into a header")
        spec: dict[str, Any] = {"url": url, **({"transport": "sse"} if kind == "sse" else {})}
        headers = {name: self._text(text, name) for name, text in self._table(given["headers"], "headers").items()}
        for name, variable in self._table(entry.get("env_http_headers"), "env_http_headers").items():
            headers[name] = self._variable(variable, None, name)
        if entry.get("bearer_token_env_var") is not None:
            variable = self._one(entry["bearer_token_env_var"], "bearer_token_env_var")
            headers["Authorization"] = f"Bearer {self._variable(variable, None, 'Authorization')}"
        if headers:
            spec["headers"] = headers
        return spec

    def _env_names(self, entry: Entry) -> None:
        """Ask for what the host keeps in a keyring of its own, and know the variables of the entry itself."""
        self._own = {name: literal(text) for name, text in self._table(entry.get("envs"), "envs").items()}
        for name in self._texts(entry.get("env_keys") or [], "env_keys"):
            _check_variable(name)
            self._own = {name: self._ask(name, f"{name} (the host has it in a keyring)", secret=True), **self._own}

    def _variables(self, entry: Entry) -> dict[str, str]:
        """Return the variables of a file, and those that the host keeps, in the hub's form."""
        found = dict(self._own)
        if entry.get("envFile") is None:
            return found
        path = Path(self._plain(self._text(self._one(entry["envFile"], "envFile"), "envFile"), "envFile")).expanduser()
        path = (self._found.place.folder or self._found.place.file.parent) / path
        try:
            read = self._around.read(path)
        except ValueError as exc:
            raise NotTaken(f"its envFile {path}: {exc}") from None
        self.notes.append(f"the variables of {path} are copied")
        return found | {name: literal(text) for name, text in read.items()}

    def _passed(self, given: object) -> object:
        """Return the names of variables that Codex passes on; it may say where each is from."""
        if not isinstance(given, list):
            return given or []
        listed = cast("list[object]", given)
        return [cast("dict[str, Any]", each).get("name") if isinstance(each, dict) else each for each in listed]

    # Texts

    def _text(self, text: str, key: str) -> str:
        """Return a text of the host in the hub's form."""
        match self._found.place.references:
            case "none":
                return literal(text)
            case "shell":
                how = self._of_shell
            case "editor":
                how = self._of_editor
        found: list[str] = []
        end = 0
        for match in _REFERENCE.finditer(text):
            found += [literal(text[end : match.start()]), how(match[1], key)]
            end = match.end()
        return "".join([*found, literal(text[end:])])

    def _plain(self, text: str, key: str) -> str:
        """Return what a text of the hub's form stands for now. Raises NotTaken where that is not known yet."""
        if re.search(r"(?<!\$)\$\{", text):
            raise NotTaken(f"its {key} refers to something that is not known yet")
        return text.replace("$${", "${")

    def _of_shell(self, body: str, key: str) -> str:
        known = _VARIABLE.fullmatch(body)
        return self._variable(known[1], known[2], key) if known is not None else literal(f"${{{body}}}")

    def _of_editor(self, body: str, key: str) -> str:
        folder, kind, rest = self._found.place.folder, *body.partition(":")[::2]
        match kind:
            case "env" if known := _VARIABLE.fullmatch(rest):
                return self._variable(known[1], None, key)
            case "input" if rest in self._found.inputs:
                return self._input(rest)
            case "userHome":
                return literal(str(self._around.home))
            case "pathSeparator" | "/":
                return self._around.separator
            case "workspaceFolder" | "workspaceRoot" if folder is not None:
                return literal(str(folder))
            case "workspaceFolderBasename" if folder is not None:
                return literal(folder.name)
            case _ if kind.startswith("workspace"):
                raise NotTaken(f"${{{body}}} in {key} depends on the folder that is open; import it from the folder")
            case _:
                raise NotTaken(f"${{{body}}} in {key} is known to the editor alone")

    def _input(self, name: str) -> str:
        about = self._found.inputs[name]
        if about.get("type") == "command":
            raise NotTaken(f"${{input:{name}}} is what a command of the editor says")
        options = about.get("options")
        listed = cast("list[object]", options) if isinstance(options, list) else []
        choices = [cast("dict[str, Any]", each).get("value") if isinstance(each, dict) else each for each in listed]
        default = about.get("default")
        prompt = str(about.get("description") or name)[:200]
        secret = about.get("password") is True or why_secret(name, "a value") is not None
        texts = tuple(each for each in choices if isinstance(each, str))
        return self._ask(name, prompt, secret=secret, default=default if isinstance(default, str) else None, of=texts)

    def _variable(self, name: str, default: str | None, key: str) -> str:
        """Return a variable in the hub's form; `key` is what it is for."""
        _check_variable(name)
        if name in self._own:
            return self._own[name]
        if default is not None or name in self._around.environ:
            if default is None:
                self.notes.append(f"reads the variable {name} of the hub's environment")
            return f"${{{name}{default or ''}}}"
        secret = any(why_secret(each, "a value") is not None for each in (name, key))
        return self._ask(name, f"{name} (a variable that is not set here)", secret=secret)

    def _ask(
        self, name: str, prompt: str, *, secret: bool, default: str | None = None, of: tuple[str, ...] = ()
    ) -> str:
        self.asks.setdefault(name, Ask(id=name, prompt=prompt, secret=secret, default=default, choices=of))
        return f"${{input:{name}}}"

    # Shapes

    def _one(self, value: object, key: str) -> str:
        text = (
            str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value
        )
        if not isinstance(text, str):
            raise NotTaken(f"its {key} is no text")
        if len(text) > MAX_TEXT or "\0" in text:
            raise NotTaken(f"its {key} is too long" if len(text) > MAX_TEXT else f"its {key} has a NUL")
        if _HALF.search(text):
            raise NotTaken(f"its {key} has half a character, which no file can have")
        return text

    def _texts(self, value: object, key: str) -> list[str]:
        if not isinstance(value, list) or len(cast("list[object]", value)) > MAX_ITEMS:
            raise NotTaken(f"its {key} is no list" if not isinstance(value, list) else f"its {key} is too long")
        return [self._one(each, key) for each in cast("list[object]", value)]

    def _table(self, value: object, key: str) -> dict[str, str]:
        if value is None:
            return {}
        if not isinstance(value, dict) or len(cast("dict[object, object]", value)) > MAX_ITEMS:
            raise NotTaken(f"its {key} is no table" if not isinstance(value, dict) else f"its {key} is too long")
        table = cast("dict[object, object]", value)
        return {
            self._one(name, key): self._one(each, f"{key} {name}") for name, each in table.items() if each is not None
        }


def _check_variable(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise NotTaken(f"{name!r} is no name of a variable")


def _cut(note: str) -> str:
    return note if len(note) <= MAX_NOTE else f"{note[: MAX_NOTE - 1]}…"


def _name(name: str) -> str:
    """Return the nearest name that a server of the hub may have."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-").rstrip("-")[:64]
    return plain if _NAMED.fullmatch(plain) else "server"


def _is_url(value: object) -> bool:
    if not isinstance(value, str) or not value.lower().startswith(("http://", "https://")):
        return False
    try:
        urlsplit(value)
    except ValueError:
        return False
    return True


def _each(value: object, put: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return put(value)
    if isinstance(value, list):
        return [_each(each, put) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: _each(each, put) for key, each in cast("dict[str, object]", value).items()}
    return value


def shortened(spec: Mapping[str, Any], width: int = 60) -> str:
    """Return the command or address in one line, for people, without what looks like a secret."""
    for secret in secrets(spec):
        spec = replaced(spec, secret, "***")
    if "url" in spec:
        text = str(spec["url"])
    else:
        command = str(spec["command"])
        parts: list[PurePath] = [PurePosixPath(command), PureWindowsPath(command)]
        text = " ".join([min((part.name for part in parts), key=len), *spec.get("args", ())])
    return text if len(text) <= width else f"{text[: width - 1]}…"
