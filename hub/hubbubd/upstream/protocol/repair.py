"""Repairs what a server sends where that does no harm: what is wrong in it is left out, and the rest stays.

Only invalid documents are repaired. No table says which members may be left out: when a required one is left out, the
object around it becomes invalid, and is left out as well, from the inside outwards.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final, cast

from pydantic import ValidationError

REPAIRABLE_VALUES: Final = 5000
"""A document with so many values is not repaired, as a repair validates the whole document several times."""

ROUNDS: Final = 6
"""How often a document is repaired and validated again; about as deep as schemas nest."""

PROBLEMS: Final = 50
"""How many problems are repaired per round."""

SHOWN: Final = 5
"""How many names a note has."""

SHOWN_CHARACTERS: Final = 60
"""Longest name in a note."""

_SCHEMAS: Final = ("inputSchema", "outputSchema")


@dataclass(slots=True)
class NameSample:
    """Up to SHOWN names for a note, and the `count` of all names."""

    count: int = 0
    names: list[str] = field(default_factory=list[str])

    def add(self, name: str) -> None:
        """Count a name, which the server may have chosen."""
        self.count += 1
        if len(self.names) < SHOWN and name[:SHOWN_CHARACTERS] not in self.names:
            self.names.append(name[:SHOWN_CHARACTERS])

    def __str__(self) -> str:
        rest = f" and {self.count - len(self.names)} more" if self.count > len(self.names) else ""
        return ", ".join(self.names) + rest


@dataclass(slots=True)
class ResultFindings:
    """What deviates in a document: parts `repaired`, entries `dropped`, `unknown_types` of content that was passed on.

    `has_empty_list` says that an empty list was taken as an empty object.
    """

    repaired: NameSample = field(default_factory=NameSample)
    dropped: NameSample = field(default_factory=NameSample)
    unknown_types: NameSample = field(default_factory=NameSample)
    has_empty_list: bool = False


@dataclass(frozen=True, slots=True)
class Repairer:
    """Repairs documents of one type, in place. `vital` are members that are never left out.

    Empty lists become objects. With `members` invalid members are left out as well, with `entries` also entries of
    lists. A request is repaired without either: what it means must not change.
    """

    validate: Callable[[Any], object]
    members: bool = True
    entries: bool = False
    vital: Collection[str] = ()

    def repair(self, value: Any, error: ValidationError, findings: ResultFindings, name: str = "") -> bool:
        """Repair a value that is invalid for the reason `error`; return whether it is valid now.

        `name` is what a note calls it.
        """
        changed = False
        for _ in range(ROUNDS):
            problems = error.errors(include_url=False, include_input=False, include_context=False)[:PROBLEMS]
            # A dict instead of a set keeps the order.
            paths = dict.fromkeys(
                _problem_path(value, each["loc"], missing=each["type"] == "missing") for each in problems
            )
            replaced = [path for path in paths if _replace_empty_list(value, path)]
            if replaced:
                findings.has_empty_list = True  # which may be all that was wrong: the rest waits for the next round
            # Backwards, as leaving out an entry of a list moves those behind it.
            elif all(self._leave_out(value, path) for path in reversed(paths)):
                changed = True
            else:
                return False
            remaining_error = validation_error(self.validate, value)
            if remaining_error is None:
                if changed:
                    findings.repaired.add(name)
                return True
            error = remaining_error
        return False

    def _leave_out(self, value: Any, path: tuple[int | str, ...]) -> bool:
        """Leave out the innermost member or entry on a path that may be left out; return False if there is none."""
        while path and self.members:
            container, key = _value_at(value, path[:-1]), path[-1]
            if isinstance(container, dict) and key not in self.vital:
                if len(path) == 3 and path[0] in _SCHEMAS and path[1] == "properties":
                    container[key] = {}  # an argument of which nothing is known
                else:
                    cast("dict[Any, Any]", container).pop(key, None)
                return True
            if isinstance(container, list) and self.entries and isinstance(key, int):
                del cast("list[Any]", container)[key : key + 1]
                return True
            if key in self.vital:
                return False
            path = path[:-1]
        return False


def validation_error(validate: Callable[[Any], object], value: Any) -> ValidationError | None:
    """Return why a value is invalid, None if it is not."""
    try:
        validate(value)
    except ValidationError as exc:
        return exc
    return None


def _problem_path(value: Any, loc: tuple[int | str, ...], *, missing: bool) -> tuple[int | str, ...]:
    """Return the path to the value that a problem is about; for a missing member, to the object that should have it.

    `loc` is pydantic's path, which also names the types of unions: these steps are not in the value.
    """
    path: list[int | str] = []
    for step in loc[:-1] if missing else loc:
        if (isinstance(value, dict) and step in value) or (
            isinstance(value, list) and isinstance(step, int) and step < len(cast("list[Any]", value))
        ):
            value = cast("Any", value)[step]
            path.append(step)
    return tuple(path)


def _replace_empty_list(value: Any, path: tuple[int | str, ...]) -> bool:
    """Replace an empty list by an empty object, as PHP writes one for the other; return False for anything else."""
    container = _value_at(value, path[:-1])
    if not path or container is None or _value_at(value, path) != []:
        return False
    container[path[-1]] = {}
    return True


def _value_at(value: Any, path: tuple[int | str, ...]) -> Any:
    """Return the value at a path; None if the path leads to nothing any more."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


# These functions fill in required members that are missing or odd.


def fill_in_tool_schemas(tool: dict[str, Any]) -> bool:
    """Give a tool's schemas the type object, as arguments and structured content always are objects.

    A tool without a usable `inputSchema` takes any arguments (tools, data types). Returns whether anything changed.
    """
    arguments, structured = tool.get("inputSchema"), tool.get("outputSchema")
    if isinstance(arguments, dict):
        tool["inputSchema"] = _object_schema(cast("dict[str, Any]", arguments))
    else:
        tool["inputSchema"] = {"type": "object"}
    if isinstance(structured, dict):
        tool["outputSchema"] = _object_schema(cast("dict[str, Any]", structured))
    return (tool["inputSchema"], tool.get("outputSchema")) != (arguments, structured)


def _object_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with the type object, if it has none or allows other types as well."""
    kind: object = schema.get("type")
    if kind is None or (isinstance(kind, list) and "object" in kind):
        return {**schema, "type": "object"}
    return schema


def fill_in_resource_name(resource: dict[str, Any]) -> bool:
    """Name a resource or a template without a name by its title or its URI; return whether that was done."""
    if isinstance(resource.get("name"), str):
        return False
    for member in ("title", "uri", "uriTemplate"):
        name = resource.get(member)
        if isinstance(name, str) and name:
            resource["name"] = name
            return True
    return False


def fill_in_caching(result: dict[str, Any]) -> bool:
    """Forbid to cache a result that does not say how long it may be cached (2026-07-28, caching).

    Returns whether anything changed.
    """
    changed = False
    if not isinstance(result.get("ttlMs"), int) or isinstance(result["ttlMs"], bool):
        result["ttlMs"] = 0
        changed = True
    if result.get("cacheScope") not in ("public", "private"):
        result["cacheScope"] = "private"
        changed = True
    return changed


def fill_in_introduction(result: dict[str, Any]) -> bool:
    """Fill in name, version and capabilities of a server, and read a capability of `true` as one without options.

    Returns whether anything changed.
    """
    changed = False
    if "protocolVersion" in result:  # of initialize
        server_info: object = result.get("serverInfo")
        info = cast("dict[str, Any]", server_info) if isinstance(server_info, dict) else {}
        missing = {name: "" for name in ("name", "version") if not isinstance(info.get(name), str)}
        if missing:
            result["serverInfo"] = {**info, **missing}
            changed = True
        if result.get("capabilities") is None:
            result["capabilities"] = {}
            changed = True
    capabilities = result.get("capabilities")
    if isinstance(capabilities, dict):
        for name, options in cast("dict[str, Any]", capabilities).items():
            if options is True:
                capabilities[name] = {}
                changed = True
    return changed


_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_NEAREST: Final = {"trace": "debug", "verbose": "debug", "warn": "warning", "err": "error", "fatal": "critical"}
"""Names of levels that programs use instead of those of RFC 5424."""


def fill_in_log_message(params: dict[str, Any]) -> None:
    """Give a log message the nearest level of RFC 5424 and data (else `message`); drop a `logger` that is no text."""
    named_level = params.get("level")
    level = named_level.lower() if isinstance(named_level, str) else ""
    params["level"] = level if level in _LEVELS else _NEAREST.get(level, "info")
    params.setdefault("data", params.get("message"))
    if not isinstance(params.get("logger", ""), str):
        del params["logger"]
