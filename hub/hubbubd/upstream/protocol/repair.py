"""Mends what a server sends where that does no harm: what is wrong in it is left out, and the rest stays.

Only what is invalid comes here. What may be left out is known without a table of members: leaving out one that is
required makes what is around it invalid, and then that is left out, from the inside outwards.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final, cast

from pydantic import ValidationError

MENDABLE: Final = 5000
"""The most values of what is mended: it is validated as a whole, several times."""

ROUNDS: Final = 6
"""How often it is validated again; about as deep as schemas nest."""

PROBLEMS: Final = 50
"""How many problems are mended per round."""

SHOWN: Final = 5
"""How many names a note has."""

SHOWN_CHARACTERS: Final = 60
"""Longest name in a note."""

_SCHEMAS: Final = ("inputSchema", "outputSchema")


@dataclass(slots=True)
class NameSample:
    """Some names for a note, and how many there are in all."""

    count: int = 0
    first: list[str] = field(default_factory=list[str])

    def add(self, name: str) -> None:
        """Count a name, which the server may have chosen."""
        self.count += 1
        if len(self.first) < SHOWN and name[:SHOWN_CHARACTERS] not in self.first:
            self.first.append(name[:SHOWN_CHARACTERS])

    def __str__(self) -> str:
        rest = f" and {self.count - len(self.first)} more" if self.count > len(self.first) else ""
        return ", ".join(self.first) + rest


@dataclass(slots=True)
class ResultFindings:
    """What was odd in what a server sent: what was `mended`, entries `left_out`, and content `kept` as it is.

    `emptied` says that an empty list was taken as an empty object.
    """

    mended: NameSample = field(default_factory=NameSample)
    left_out: NameSample = field(default_factory=NameSample)
    kept: NameSample = field(default_factory=NameSample)
    emptied: bool = False


@dataclass(frozen=True, slots=True)
class Repairer:
    """Mends one kind of thing, in place. `vital` are members that are never left out.

    With `members` members are left out, with `entries` also entries of lists; otherwise empty lists become objects,
    which is all that is done to a request: what it means must not change.
    """

    validate: Callable[[Any], object]
    members: bool = True
    entries: bool = False
    vital: Collection[str] = ()

    def mend(self, value: Any, why: ValidationError, found: ResultFindings, name: str = "") -> bool:
        """Return whether the value is valid now; `name` is what a note calls it."""
        changed = False
        for _ in range(ROUNDS):
            problems = why.errors(include_url=False, include_input=False, include_context=False)[:PROBLEMS]
            # Each once, and backwards, as what is left out of a list moves what comes behind it.
            places = dict.fromkeys(_place(value, each["loc"], missing=each["type"] == "missing") for each in problems)
            if sum(_takes_as_object(value, place) for place in places):
                found.emptied = True  # which may be all that was wrong
            elif all(self._leave_out(value, place) for place in reversed(places)):
                changed = True
            else:
                return False
            still = validation_error(self.validate, value)
            if still is None:
                if changed:
                    found.mended.add(name)
                return True
            why = still
        return False

    def _leave_out(self, value: Any, place: tuple[int | str, ...]) -> bool:
        """Leave out the innermost thing around a problem that may be left out; False if there is none."""
        while place and self.members:
            around, step = _at(value, place[:-1]), place[-1]
            if isinstance(around, dict) and step not in self.vital:
                if len(place) == 3 and place[0] in _SCHEMAS and place[1] == "properties":
                    around[step] = {}  # an argument of which nothing is known
                else:
                    cast("dict[Any, Any]", around).pop(step, None)
                return True
            if isinstance(around, list) and self.entries and isinstance(step, int):
                del cast("list[Any]", around)[step : step + 1]
                return True
            if step in self.vital:
                return False
            place = place[:-1]
        return False


def validation_error(validate: Callable[[Any], object], value: Any) -> ValidationError | None:
    """Return why a value is invalid, None if it is not."""
    try:
        validate(value)
    except ValidationError as exc:
        return exc
    return None


def _place(value: Any, loc: tuple[int | str, ...], *, missing: bool) -> tuple[int | str, ...]:
    """Return the path to what a problem is about: of a missing member, to the object that should have it.

    Steps that are not in the value name the types of a union.
    """
    place: list[int | str] = []
    for step in loc[:-1] if missing else loc:
        if (isinstance(value, dict) and step in value) or (
            isinstance(value, list) and isinstance(step, int) and step < len(cast("list[Any]", value))
        ):
            value = cast("Any", value)[step]
            place.append(step)
    return tuple(place)


def _takes_as_object(value: Any, place: tuple[int | str, ...]) -> bool:
    """Take an empty list as an empty object, as PHP writes one for the other; return False for anything else."""
    around = _at(value, place[:-1])
    if not place or around is None or _at(value, place) != []:
        return False
    around[place[-1]] = {}
    return True


def _at(value: Any, place: tuple[int | str, ...]) -> Any:
    """Return what is at a path; None when it is there no more."""
    for step in place:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


# What is put in for a member that is required and missing, or another one stands for. Each says whether it did.


def supply_schemas(tool: dict[str, Any]) -> bool:
    """Have a tool's schemas say that they are of objects, as arguments and structured content always are.

    A tool without a usable `inputSchema` takes any arguments (tools, data types).
    """
    arguments, structured = tool.get("inputSchema"), tool.get("outputSchema")
    tool["inputSchema"] = (
        _of_an_object(cast("dict[str, Any]", arguments)) if isinstance(arguments, dict) else {"type": "object"}
    )
    if isinstance(structured, dict):
        tool["outputSchema"] = _of_an_object(cast("dict[str, Any]", structured))
    return (tool["inputSchema"], tool.get("outputSchema")) != (arguments, structured)


def _of_an_object(schema: dict[str, Any]) -> dict[str, Any]:
    kind: object = schema.get("type")
    if kind is None or (isinstance(kind, list) and "object" in kind):
        return {**schema, "type": "object"}
    return schema


def supply_name(resource: dict[str, Any]) -> bool:
    """Name a resource or a template without a name by its title or its URI."""
    if isinstance(resource.get("name"), str):
        return False
    names = [resource.get(member) for member in ("title", "uri", "uriTemplate")]
    named = next((name for name in names if isinstance(name, str) and name), None)
    if named is not None:
        resource["name"] = named
    return named is not None


def supply_caching(result: dict[str, Any]) -> bool:
    """Have a result say that it must not be cached, if it does not say how long (2026-07-28, caching)."""
    changed = False
    if not isinstance(result.get("ttlMs"), int) or isinstance(result["ttlMs"], bool):
        result["ttlMs"], changed = 0, True
    if result.get("cacheScope") not in ("public", "private"):
        result["cacheScope"], changed = "private", True
    return changed


def supply_introduction(result: dict[str, Any]) -> bool:
    """Fill in name and version of a server, and read a capability of `true` as one without options."""
    changed = False
    if "protocolVersion" in result:  # of initialize
        said: object = result.get("serverInfo")
        info = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
        missing = {name: "" for name in ("name", "version") if not isinstance(info.get(name), str)}
        if missing:
            result["serverInfo"], changed = {**info, **missing}, True
        if result.get("capabilities") is None:
            result["capabilities"], changed = {}, True
    able = result.get("capabilities")
    if isinstance(able, dict):
        for name, options in cast("dict[str, Any]", able).items():
            if options is True:
                able[name], changed = {}, True
    return changed


_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_NEAREST: Final = {"trace": "debug", "verbose": "debug", "warn": "warning", "err": "error", "fatal": "critical"}
"""Names of levels that programs use instead of those of RFC 5424."""


def supply_log(params: dict[str, Any]) -> None:
    """Have a log message name the nearest level (RFC 5424) and its data; what has neither says `message`."""
    said = params.get("level")
    level = said.lower() if isinstance(said, str) else ""
    params["level"] = level if level in _LEVELS else _NEAREST.get(level, "info")
    params.setdefault("data", params.get("message"))
    if not isinstance(params.get("logger", ""), str):
        del params["logger"]
