"""An entry of a host as a server of the hub: its spec, and what could not be taken over, with the reason.

Pure, but for files of variables, which `TextEnvironment.read` reads.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path, PureWindowsPath
from typing import Any, Final, cast
from urllib.parse import urlsplit

from hubbub_local.hosts.kinds import NAME
from hubbub_local.hosts.servers import Entry, FoundServer
from hubbub_local.hosts.texts import (
    InputPrompt,
    TextEnvironment,
    Texts,
    UntranslatableEntry,
    check_table,
    check_text,
    check_texts,
    check_variable,
    escape,
)
from hubbub_local.secrecy import find_secrets, replace_secret

MAX_NOTES: Final = 20
MAX_NOTE: Final = 300
"""The most notes on a server, and the longest, in characters."""

MAX_SHOWN: Final = 1000
"""The most characters of a command that are shown; a note says how many more there are."""

TRANSPORTS: Final[Mapping[str, str]] = {
    "stdio": "stdio",
    "local": "stdio",
    **dict.fromkeys(("http", "streamable-http", "streamableHttp", "streamable_http", "remote"), "http"),
    "sse": "sse",
}
"""The hub's transport by what hosts call it."""

# What hosts keep for themselves: nothing is lost without it.
_HOST_KEYS: Final = frozenset(
    {
        *("alwaysAllow", "autoApprove", "description", "dev", "gallery", "icon", "timeout", "version", "name", "title"),
        *("startup_timeout_sec", "startup_timeout_ms", "tool_timeout_sec", "required", "supports_parallel_tool_calls"),
        *("trust", "scope"),
        *("bundled", "display_name", "source", "enabled", "disabled", "type", "transport", "transportType", "note"),
    }
)
_SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "command": ("command", "cmd"),
    "url": ("url", "serverUrl", "uri", "httpUrl"),
    "env": ("env", "envs", "environment"),
    "headers": ("headers", "http_headers"),
}
_ALLOW_KEYS: Final = ("enabled_tools", "available_tools", "includeTools", "tools")
_DENY_KEYS: Final = ("disabled_tools", "disabledTools", "excludeTools")
ALL_TOOLS: Final = ["*"]
"""Every tool, where a host wants that spelled out."""

_TIMEOUT_UNIT_S: Final[Mapping[str, float]] = {
    **dict.fromkeys(("claude-code", "folder", "gemini-cli", "qwen-code", "opencode", "copilot-cli"), 0.001),
    "goose": 1,
}
"""How many seconds 1 means in `timeout`, the limit of a call, by host; to other hosts it is something else."""

_LIMIT_KEYS: Final = (
    ("tool_timeout_sec", "call_timeout_s", 1),
    ("startup_timeout_sec", "connect_timeout_s", 1),
    ("startup_timeout_ms", "connect_timeout_s", 0.001),
)
MAX_S: Final = 10_000_000
"""The longest that the hub waits, in seconds."""

_URL_IS_SSE: Final = frozenset({"qwen-code"})
"""Hosts whose `url` is of HTTP with SSE, since streamable HTTP has `httpUrl`."""

_OTHER_KEYS: Final = frozenset(
    {
        "args",
        "cwd",
        "envFile",
        "env_keys",
        "env_vars",
        "env_http_headers",
        "bearer_token_env_var",
        *_ALLOW_KEYS,
        *_DENY_KEYS,
    }
)
_KNOWN_KEYS: Final = _HOST_KEYS | _OTHER_KEYS | {name for names in _SOURCES.values() for name in names}

_INPUT_REFERENCE: Final = re.compile(r"(?<!\$)\$\{input:([^{}]*)\}")
_VALID_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A found server as one of the hub. `spec` has keys of a configuration file; None if it cannot be taken over.

    `notes` say what was changed or left out, or why there is no spec. `asks` are the values that a person has to give.
    `disabled`: it is switched off at its host.
    """

    found: FoundServer
    name: str
    spec: Mapping[str, Any] | None
    notes: tuple[str, ...] = ()
    asks: tuple[InputPrompt, ...] = ()
    disabled: bool = False

    @property
    def transport(self) -> str:
        """The transport, for people; empty if the server cannot be taken over."""
        if self.spec is None:
            return ""
        return str(self.spec.get("transport", "http" if "url" in self.spec else "stdio"))


def import_server(found: FoundServer, environment: TextEnvironment) -> Imported:
    """Return a found server as one of the hub; without a spec if it cannot be translated."""
    name = _make_valid_name(found.name)
    translation = _Translation(found, environment)
    try:
        spec = translation.make_spec()
    except UntranslatableEntry as exc:
        return Imported(found=found, name=name, spec=None, notes=(_cut_note(str(exc)),), disabled=translation.disabled)
    notes = translation.texts.notes
    if name != found.name:
        notes = [*notes, f"there it is called {found.name!r}"]
    return Imported(
        found=found,
        name=name,
        spec=spec,
        notes=tuple(dict.fromkeys(map(_cut_note, notes)))[:MAX_NOTES],
        asks=tuple(translation.texts.asks.values()),
        disabled=translation.disabled,
    )


def is_hub(found: FoundServer) -> bool:
    """Return whether a server of a host is Hubbub itself."""
    entry = found.entry
    arguments: list[object] = []
    for part in (entry.get("command", entry.get("cmd")), entry.get("args")):
        arguments += cast("list[object]", part) if isinstance(part, list) else [part]
    names = [
        PureWindowsPath(argument).stem for argument in arguments if isinstance(argument, str)
    ]  # also of paths with slashes
    return found.name == NAME or (NAME in names and "mcp" in names)


def fill_in_values(server: Imported, values: Mapping[str, str]) -> Imported:
    """Return a server with the values that a person gave for its prompts, by id; other prompts stay."""

    def fill_in(text: str) -> str:
        """Return a text with the values in place of their prompts."""
        return _INPUT_REFERENCE.sub(lambda match: values.get(match[1], match[0]), text)

    if server.spec is None:
        return server
    spec = {key: _map_texts(value, fill_in) for key, value in server.spec.items()}
    return replace(server, spec=spec, asks=tuple(ask for ask in server.asks if ask.id not in values))


def give_unique_names(servers: list[Imported], taken: Mapping[str, object]) -> list[Imported]:
    """Return the servers with names that differ from each other and from `taken`: with the host's name or a number."""
    used = set(taken)
    renamed: list[Imported] = []
    for each in servers:
        # A name has 64 characters at most: there is room for what is added.
        options = (each.name, _make_valid_name(f"{each.name[:48]}-{each.found.place.host}"))
        numbered = (f"{each.name[:56]}-{number}" for number in count(2))
        name = next(option for option in chain(options, numbered) if option not in used)
        used.add(name)
        renamed.append(replace(each, name=name))
    return renamed


class _Translation:
    """Translates one entry of a host to a spec of the hub; notes and prompts for a person are in `texts`."""

    def __init__(self, found: FoundServer, environment: TextEnvironment) -> None:
        self._found = found
        self._environment = environment
        self.texts = Texts(found, environment)
        entry = found.entry
        self.disabled = found.is_off or entry.get("disabled") is True or entry.get("enabled") is False

    def make_spec(self) -> dict[str, Any]:
        """Return the spec of the hub for the entry. Raises UntranslatableEntry."""
        entry = self._flatten_command(self._found.entry)
        sources = {key: next((entry[name] for name in names if name in entry), None) for key, names in _SOURCES.items()}
        kind = self._find_transport(entry, sources)
        self._read_own_variables(entry)
        spec = self._make_stdio_spec(entry, sources) if kind == "stdio" else self._make_http_spec(entry, sources, kind)
        for key, names in (("allow_tools", _ALLOW_KEYS), ("deny_tools", _DENY_KEYS)):
            tools = next((entry[name] for name in names if entry.get(name)), None)
            if tools is not None and tools != ALL_TOOLS:
                # The host has names of tools, the hub has patterns: what is special in a pattern is escaped.
                spec[key] = [re.sub(r"([*?[])", r"[\1]", text) for text in check_texts(tools, key)]
        spec |= self._read_limits(entry)
        # The names in YAML need not be texts.
        for key in sorted(map(str, entry.keys() - _KNOWN_KEYS)):
            self.texts.notes.append(f"{key!r} is not taken over")
        return spec

    def _flatten_command(self, entry: Entry) -> Entry:
        """Return an entry whose command is a text: Zed also had a table, and opencode has a list.

        Raises UntranslatableEntry for an extension, whose command only the editor knows.
        """
        command = entry.get("command")
        if isinstance(command, list) and command:
            first, *rest = cast("list[object]", command)
            return {**entry, "command": first, "args": rest}
        if isinstance(command, dict):
            parts = cast("dict[str, Any]", command)
            within = {("command" if key == "path" else key): value for key, value in parts.items()}
            return {**entry, "command": None, **within}
        if "command" not in entry and entry.get("source") == "extension":
            raise UntranslatableEntry("an extension of the editor starts it, with a command that only the editor knows")
        return entry

    def _find_transport(self, entry: Entry, sources: Mapping[str, Any]) -> str:
        """Return the hub's transport for an entry: the one it names, else by its command or the form of its url.

        Raises UntranslatableEntry.
        """
        kind = entry.get("type", entry.get("transport", entry.get("transportType")))
        if kind is None:
            if sources["command"]:
                return "stdio"
            if not sources["url"]:
                raise UntranslatableEntry("it has neither a command nor a url")
            if self._found.place.host in _URL_IS_SSE and "url" in entry and "httpUrl" not in entry:
                return "sse"
            path = urlsplit(str(sources["url"])).path if _is_url(sources["url"]) else ""
            return "sse" if path.rstrip("/").endswith("/sse") else "http"
        if not isinstance(kind, str) or kind not in TRANSPORTS:
            raise UntranslatableEntry(f"the hub has no transport {kind!r}")
        return TRANSPORTS[kind]

    def _make_stdio_spec(self, entry: Entry, sources: Mapping[str, Any]) -> dict[str, Any]:
        """Return the spec of an entry that starts a command. Raises UntranslatableEntry."""
        if not isinstance(sources["command"], str) or not sources["command"].strip():
            raise UntranslatableEntry("its command is no text")
        spec: dict[str, Any] = {
            "command": self.texts.translate_text(check_text(sources["command"], "command"), "command")
        }
        if args := check_texts(entry.get("args") or [], "args"):
            spec["args"] = [self.texts.translate_text(each, "args") for each in args]
        env = self._read_variables(entry)
        env |= {
            name: self.texts.translate_env_value(text, name)
            for name, text in check_table(sources["env"], "env").items()
        }
        for name in check_texts(self._list_passed_variables(entry.get("env_vars")), "env_vars"):
            env[name] = self.texts.translate_variable(name, None, name)
        if env:
            spec["env"] = env
        if entry.get("cwd") is not None:
            spec["cwd"] = self.texts.translate_path(check_text(entry["cwd"], "cwd"), "cwd")
        elif self._found.place.folder is not None:
            spec["cwd"] = escape(str(self._found.place.folder))
        return spec

    def _make_http_spec(self, entry: Entry, sources: Mapping[str, Any], kind: str) -> dict[str, Any]:
        """Return the spec of an entry with a url. Raises UntranslatableEntry."""
        url = self.texts.translate_text(check_text(sources["url"], "url"), "url")
        if not _is_url(url) and not url.startswith("${"):
            raise UntranslatableEntry("its url does not begin with http:// or https://")
        if "@" in urlsplit(url).netloc if _is_url(url) else False:
            raise UntranslatableEntry("its url has a user and a password; put them into a header")
        spec: dict[str, Any] = {"url": url, **({"transport": "sse"} if kind == "sse" else {})}
        headers = {
            name: self.texts.translate_text(text, name)
            for name, text in check_table(sources["headers"], "headers").items()
        }
        for name, variable in check_table(entry.get("env_http_headers"), "env_http_headers").items():
            headers[name] = self.texts.translate_variable(variable, None, name)
        if entry.get("bearer_token_env_var") is not None:
            variable = check_text(entry["bearer_token_env_var"], "bearer_token_env_var")
            headers["Authorization"] = f"Bearer {self.texts.translate_variable(variable, None, 'Authorization')}"
        if headers:
            spec["headers"] = headers
        return spec

    def _read_limits(self, entry: Entry) -> dict[str, Any]:
        """Return the time limits for calls and for connecting that the entry has, as options of the hub, in seconds.

        A note is added for each that the hub cannot have.
        """
        found: dict[str, Any] = {}
        unit_s = _TIMEOUT_UNIT_S.get(self._found.place.host)
        limits = [("timeout", "call_timeout_s", unit_s), *_LIMIT_KEYS]
        for name, key, unit in limits:
            value = entry.get(name)
            if unit is None or value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value * unit <= MAX_S:
                self.texts.notes.append(f"its {name} is no time that the hub can wait")
            else:
                found[key] = value * unit
        return found

    def _read_own_variables(self, entry: Entry) -> None:
        """Set `texts.variables` to those of the entry; a person is asked for those that the host has in a keyring.

        Raises UntranslatableEntry.
        """
        self.texts.variables = {name: escape(text) for name, text in check_table(entry.get("envs"), "envs").items()}
        for name in check_texts(entry.get("env_keys") or [], "env_keys"):
            check_variable(name)
            self.texts.variables = {
                name: self.texts.request_value(name, f"{name} (the host has it in a keyring)", secret=True),
                **self.texts.variables,
            }

    def _read_variables(self, entry: Entry) -> dict[str, str]:
        """Return the entry's own variables and those of its `envFile`, in the hub's form; note that the file is copied.

        Raises UntranslatableEntry.
        """
        found = dict(self.texts.variables)
        if entry.get("envFile") is None:
            return found
        path = Path(
            self.texts.resolve_plain_text(
                self.texts.translate_text(check_text(entry["envFile"], "envFile"), "envFile"), "envFile"
            )
        ).expanduser()
        path = (self._found.place.folder or self._found.place.file.parent) / path
        try:
            read = self._environment.read(path)
        except ValueError as exc:
            raise UntranslatableEntry(f"its envFile {path}: {exc}") from None
        self.texts.notes.append(f"the variables of {path} are copied")
        return found | {name: escape(text) for name, text in read.items()}

    def _list_passed_variables(self, env_vars: object) -> object:
        """Return the names of the variables that Codex passes on, each written as a text or as the `name` of a table.

        Return a value that is no list as it is, for the caller to refuse.
        """
        if not isinstance(env_vars, list):
            return env_vars or []
        listed = cast("list[object]", env_vars)
        return [cast("dict[str, Any]", each).get("name") if isinstance(each, dict) else each for each in listed]


def _cut_note(note: str) -> str:
    """Return a note of at most MAX_NOTE characters, with an ellipsis for what is cut."""
    return note if len(note) <= MAX_NOTE else f"{note[: MAX_NOTE - 1]}…"


def _make_valid_name(name: str) -> str:
    """Return the nearest name that a server of the hub may have."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-").rstrip("-")[:64]
    return plain if _VALID_NAME.fullmatch(plain) else "server"


def _is_url(value: object) -> bool:
    """Return whether a value is a text that begins with http:// or https:// and can be parsed as a URL."""
    if not isinstance(value, str) or not value.lower().startswith(("http://", "https://")):
        return False
    try:
        urlsplit(value)
    except ValueError:
        return False
    return True


def _map_texts(value: object, change: Callable[[str], str]) -> Any:
    """Return a value with each text in it changed by a function."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_texts(each, change) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: _map_texts(each, change) for key, each in cast("dict[str, object]", value).items()}
    return value


def describe_target(spec: Mapping[str, Any]) -> str:
    """Return the command with its path and all its arguments, or the address, without what looks like a secret."""
    for secret in find_secrets(spec):
        spec = replace_secret(spec, secret, "***")
    text = str(spec["url"]) if "url" in spec else " ".join(map(str, [spec["command"], *spec.get("args", ())]))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}… and {len(text) - MAX_SHOWN} characters more"
