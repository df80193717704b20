"""The configuration file of the hub, changed in one place and kept in all others, comments and spaces included.

Each change is made to the text, which is then parsed: unless it has the same values as before, but for the change,
the change is refused.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from hubbub_local.secrecy import find_secret_reason, find_secrets

MAX_BYTES: Final = 16 * 1024 * 1024
"""The largest configuration file that is changed."""

MASK: Final = "**********"
"""What is shown of a secret."""

HEADER: Final = (
    "# The configuration of Hubbub. docs/configuration.md says what can be here; `hubbub config edit` checks it.\n"
)

_SECRET_TABLES: Final = ("env", "headers")


class Unchangeable(Exception):
    """The file cannot be changed; the message says why."""


def read_config(file: Path) -> str:
    """Return the text of a file, empty if there is none. Raises Unchangeable, OSError."""
    if not file.exists():
        return ""
    if not file.is_file():  # reading a pipe would block
        raise Unchangeable("it is no file")
    if file.suffix.lower() != ".toml":
        raise Unchangeable("only a file of TOML can be shown or changed here")
    with file.open("rb") as stream:
        raw = stream.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise Unchangeable("it is too large")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unchangeable("it is not text in UTF-8") from None


def parse_config(text: str) -> dict[str, Any]:
    """Return a text of TOML as a table. Raises Unchangeable."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as exc:
        raise Unchangeable(f"it is not TOML: {exc}") from None


def list_servers(text: str) -> dict[str, Mapping[str, Any]]:
    """Return the servers of a text, by name. Raises Unchangeable."""
    tables = parse_config(text).get("servers", {})
    if not isinstance(tables, dict):
        raise Unchangeable("its `servers` is no table")
    table = cast("dict[str, Any]", tables)
    return {name: cast("Mapping[str, Any]", each) for name, each in table.items() if isinstance(each, dict)}


def add_server(text: str, name: str, spec: Mapping[str, Any], comment: str = "") -> str:
    """Return the text with another server at its end, below a `comment`. Raises Unchangeable, also for a taken name."""
    before = parse_config(text)
    if name in list_servers(text):
        raise Unchangeable(f"it has a server {name!r} already")
    table: dict[str, Any] = {key: _to_plain(value) for key, value in spec.items()}
    comment_lines = [f"# {' '.join(comment.split())}\n"] if comment else []
    own_text = text if text.strip() else HEADER
    own_text = own_text if own_text.endswith("\n") else f"{own_text}\n"
    try:
        after = f"{own_text}\n{''.join(comment_lines)}{_render_server(name, table)}"
        _check_text(after, {**before, "servers": {**before.get("servers", {}), name: table}})
    except Unchangeable:  # `servers` is written as one value: then the server goes into it
        after = _set_in_text(text, ("servers", name), table)
        _check_text(after, {**before, "servers": {**before.get("servers", {}), name: table}})
    return after


def set_value(text: str, key: str, value: Any) -> str:
    """Return the text with one value set, by its dotted key. Raises Unchangeable."""
    path = split_key(key)
    expected = _set_in_table(parse_config(text), path, value, key)
    after = _set_in_text(text if text.strip() else HEADER, path, value)
    _check_text(after, expected)
    return after


def split_key(key: str) -> tuple[str, ...]:
    """Return the parts of a dotted key, as TOML divides it. Raises Unchangeable."""
    try:
        # If it is one dotted key, this gives tables of one entry each, one in the other, and 0 in the last.
        found: object = tomllib.loads(f"{key} = 0")
    except (ValueError, RecursionError):
        found = None
    path: list[str] = []
    while isinstance(found, dict) and len(cast("dict[str, object]", found)) == 1:
        ((name, found),) = cast("dict[str, object]", found).items()
        path.append(name)
    if found != 0 or "\n" in key:
        raise Unchangeable(f"{key!r} is no key, such as hub.log_level or servers.NAME.call_timeout_s")
    return tuple(path)


def parse_value(text: str) -> Any:
    """Return the value of a text that a person typed: parsed if it is a value of TOML, else the text itself."""
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return found["value"] if len(found) == 1 else text  # more: the text goes on with lines of its own


def mask_secrets(text: str) -> dict[str, Any]:
    """Return a text of TOML as a table, with MASK for secrets; references are no secrets. Raises Unchangeable."""
    return cast("dict[str, Any]", _mask_values(parse_config(text), ()))


def _mask_values(value: object, path: tuple[str, ...]) -> object:
    """Return a value with MASK for the secrets in it; `path` are the keys that lead to the value."""
    if isinstance(value, list):
        return [_mask_values(each, path) for each in cast("list[object]", value)]
    if isinstance(value, str):
        # Addresses of services that notify have tokens in them, each in a form of its own.
        return MASK if "://" in value and path[:1] == ("notify",) and not _is_reference(value) else value
    if not isinstance(value, dict):
        return value
    table = {key: _mask_values(each, (*path, key)) for key, each in cast("dict[str, object]", value).items()}
    if len(path) == 2 and path[0] == "servers":
        return _mask_server(table)
    masked = {key: MASK if _is_secret(key, each) else each for key, each in table.items()}
    if path == ("store",) and "url" in masked:  # what follows `?` may be a password, too
        masked["url"] = _mask_query(str(masked["url"]))
    return masked


def _is_secret(key: str, value: object) -> bool:
    """Return whether a value is a text that is a secret, by its key or by how it looks; a reference is none."""
    return isinstance(value, str) and (
        (key in ("client_secret", "private_key") and "${" not in value) or find_secret_reason(key, value) is not None
    )


def _mask_server(spec: dict[str, object]) -> dict[str, object]:
    """Return a server with MASK for all variables and headers but references, and for what else looks like a secret."""
    masked = dict(spec)
    for key in _SECRET_TABLES:
        if isinstance(table := masked.get(key), dict):
            masked[key] = {
                name: each if isinstance(each, str) and _is_reference(each) else MASK
                for name, each in cast("dict[str, object]", table).items()
            }
    texts: dict[str, Any] = {"url": masked.get("url") if isinstance(masked.get("url"), str) else ""}
    if isinstance(args := masked.get("args"), list):
        texts["args"] = [each if isinstance(each, str) else "" for each in cast("list[object]", args)]
    for secret in find_secrets(texts):
        if secret.path[0] == "args":
            listed = cast("list[object]", masked["args"])
            masked["args"] = [
                secret.before + MASK if number == secret.path[1] else each for number, each in enumerate(listed)
            ]
        else:
            masked["url"] = secret.before + MASK
    return masked


def _mask_query(url: str) -> str:
    """Return a url with MASK in place of its query."""
    head, mark, _ = url.partition("?")
    return f"{head}?{MASK}" if mark and url != MASK else url


def _is_reference(value: str) -> bool:
    """Return whether a text is one `${...}` and nothing else."""
    return value.startswith("${") and value.endswith("}") and value.count("${") == 1


def _check_text(text: str, expected: Mapping[str, Any]) -> None:
    """Raise Unchangeable unless a changed text parses to what is expected."""
    try:
        is_expected = tomllib.loads(text) == expected
    except (ValueError, RecursionError):
        is_expected = False
    if not is_expected:
        raise Unchangeable("it is written in a way that cannot be changed here; `hubbub config edit` opens it")


def _set_in_table(table: Mapping[str, Any], path: Sequence[str], value: Any, key: str) -> dict[str, Any]:
    """Return a table with a value set at a path; `key` is the path in errors. Raises Unchangeable."""
    first, *rest = path
    if not rest:
        return {**table, first: value}
    inner_table = table.get(first, {})
    if not isinstance(inner_table, dict):
        raise Unchangeable(f"{key}: {first} is a value, with nothing in it")
    return {**table, first: _set_in_table(cast("dict[str, Any]", inner_table), rest, value, key)}


def _set_in_text(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with a value set at a path, as tomlkit writes it. Raises Unchangeable."""
    import tomlkit  # imported late: only changes need it
    from tomlkit.exceptions import TOMLKitError

    dumps = cast("Callable[[Any], str]", tomlkit.dumps)  # pyright: ignore[reportUnknownMemberType]
    try:
        document = tomlkit.parse(text)
        table: Any = document
        for number, name in enumerate(path[:-1]):
            if name not in table:
                table[name] = tomlkit.table(is_super_table=number < len(path) - 2)
            table = table[name]
        table[path[-1]] = value
        return dumps(document)
    except (TOMLKitError, TypeError, KeyError, AttributeError, ValueError, RecursionError) as exc:
        raise Unchangeable(f"it cannot be changed here: {exc}") from None


def _render_server(name: str, spec: Mapping[str, Any]) -> str:
    """Return a server as TOML: its tables in one line each, so that it stays one block."""
    import tomlkit  # imported late, as above

    dumps = cast("Callable[[Any], str]", tomlkit.dumps)  # pyright: ignore[reportUnknownMemberType]
    table: Any = tomlkit.table()
    for key, value in spec.items():
        if isinstance(value, dict):
            inline: Any = tomlkit.inline_table()
            inline.update(value)
            table[key] = inline
        else:
            table[key] = value
    outer: Any = tomlkit.table(is_super_table=True)
    outer[name] = table
    document: Any = tomlkit.document()
    document["servers"] = outer
    return dumps(document)


def _to_plain(value: Any) -> Any:
    """Return a value with plain lists and dicts in place of other sequences and mappings."""
    if isinstance(value, Mapping):
        return {str(key): _to_plain(each) for key, each in cast("Mapping[object, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(each) for each in cast("Sequence[Any]", value)]
    return value


def render_config(value: Mapping[str, Any]) -> str:
    """Return a configuration as TOML."""
    import tomlkit  # imported late, as above

    return cast("Callable[[Any], str]", tomlkit.dumps)(value)  # pyright: ignore[reportUnknownMemberType]
