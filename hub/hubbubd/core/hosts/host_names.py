"""Names of tools and prompts as hosts see them: `PREFIX__NAME`, and the way back to the server and its own name.

Hosts and the APIs of models take `[A-Za-z0-9_-]` and few characters. So a name is cleaned, and cut if it is too long:

    prefix   the alias or name of the server; it has no `__` and does not end in `_`, so the first `__` ends it
    name     the server's own, other characters replaced by `_`
    digits   `_` and hex digits of SHA-256, at the end of a prefix or name that was cut or would not be unique

Nothing that is not made with digits ends as if it were. So the name of a tool follows from its server alone: from the
server's name or alias, and from the names in its own list. What other servers offer changes none. The exceptions are
servers that share a prefix, which the settings refuse, and profiles without prefixes, for all servers or for some:
these keep the names that hosts can take as they are; the first server by name keeps one that several have.

Nobody splits a name: `HostNames` is the table for both directions.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final, cast

from hubbubd.timing.turns import run_at_once

SEPARATOR: Final = "__"

DIGITS: Final = 6
"""Hex digits that tell two names apart; more where so few do not."""

MIN_NAME_CHARS: Final = 16
"""Characters that a prefix leaves at least for the name after it: digits of a hash, and a few to read."""

OWN_TOOL_PREFIX: Final = "hubbub_"
"""What the names of the hub's own tools begin with."""

SERVER_MEMBER: Final = "hubbub/server"
NAME_MEMBER: Final = "hubbub/name"
"""Members of an entry's `_meta`: its server, and its name there."""

_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_UNDERSCORES = re.compile(r"__+")
_ENDS_IN_DIGITS = re.compile(rf"_[0-9a-f]{{{DIGITS},}}\Z")

Origin = tuple[str, str]
"""A server and the name of a tool or prompt there."""


@dataclass(frozen=True, slots=True)
class NameConflict:
    """Tools (or prompts) of several servers that would have one name."""

    name: str
    origins: tuple[Origin, ...]

    def __str__(self) -> str:
        owners = " and ".join(f"{name!r} of {server}" for server, name in self.origins)
        return f"{owners} would both be called {self.name!r}"


@dataclass(frozen=True, slots=True)
class HostNames:
    """The names of one list, as hosts see them. Each of the two mappings is the inverse of the other."""

    names_by_origin: Mapping[Origin, str]
    origins_by_name: Mapping[str, Origin]
    conflicts: tuple[NameConflict, ...] = ()
    """Where servers want one name: without prefixes, or where two share one. Digits tell their tools apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRule:
    """How names are made: the profile's `alias`, `prefix`, `max_tool_name` (32 at least) and `bare`."""

    alias: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    prefixed: bool = True
    max_chars: int = 50
    bare: tuple[str, ...] = ()
    """Patterns of the servers whose names have no prefix, where all others have one."""

    def prefix(self, server: str) -> str:
        """Return the prefix of all names of a server, without the separator; empty without prefixes.

        The prefix is the server's alias or name if hosts can take it, and if it does not look like a prefix with
        digits. Else it is cleaned, cut, and gets digits of a hash of the server's name.
        """
        if not self.prefixed:
            return ""
        label, max_prefix = self.alias.get(server, server), self.max_chars - len(SEPARATOR) - MIN_NAME_CHARS
        cleaned = _UNDERSCORES.sub("_", _replace_unfit(label))
        if (
            cleaned == label
            and len(cleaned) <= max_prefix
            and not cleaned.endswith("_")
            and not _ENDS_IN_DIGITS.search(cleaned)
        ):
            return cleaned
        return f"{cleaned[: max_prefix - DIGITS - 1].rstrip('_')}_{_digest(server)[:DIGITS]}"

    def is_bare(self, server: str) -> bool:
        """Return whether the names of a server have no prefix, though others have one."""
        return any(fnmatchcase(server, pattern) for pattern in self.bare)

    def group(self, server: str) -> str:
        """Return the name of the group of servers that a server is in: only within a group can names of tools clash.

        The names of a group are made together. A group shares one prefix, or has none.
        """
        return "" if self.is_bare(server) else self.prefix(server)

    def make_names(self, entries: Iterable[Origin]) -> HostNames:
        """Return the names of these tools or prompts, whose order does not matter. A repeated one counts once."""
        return run_at_once(self.make_names_in_steps(entries))

    def make_names_in_steps(self, entries: Iterable[Origin]) -> Generator[None, None, HostNames]:
        """Return the names of these tools or prompts, and yield after each short step, so that other work goes on.

        A repeated entry counts once. A name that several want, or that does not fit, is given digits of a hash.
        """
        origins_by_name: dict[str, Origin] = {}
        if self.bare:
            entries = yield from self._keep_bare_in_steps(entries, origins_by_name)
        prefixes: dict[str, str] = {}
        origins_by_plain_name: defaultdict[str, list[Origin]] = defaultdict(list)
        needing_digits: list[Origin] = []
        processed: set[Origin] = set()
        for origin in entries:
            yield
            if origin in processed:
                continue
            processed.add(origin)
            server, name = origin
            prefix = prefixes.setdefault(server, self.prefix(server))
            plain_name = _join_name(prefix, _replace_unfit(name))
            # First come the names that may stand without digits, in case nothing else wants them.
            if self._is_allowed_plain(plain_name, _replace_unfit(name)):
                origins_by_plain_name[plain_name].append(origin)
            else:
                needing_digits.append(origin)
        conflicts: list[NameConflict] = []
        for plain_name, rivals in origins_by_plain_name.items():
            yield
            keeper = self._choose_keeper(rivals)  # all others get digits
            if keeper is not None:
                origins_by_name[plain_name] = keeper
            needing_digits += (each for each in rivals if each != keeper)
            if len({server for server, _ in rivals}) > 1:
                conflicts.append(NameConflict(plain_name, tuple(sorted(rivals))))
        yield from self._name_with_digits(needing_digits, prefixes, origins_by_name)
        names_by_origin: dict[Origin, str] = {}
        for name, origin in origins_by_name.items():
            yield
            names_by_origin[origin] = name
        conflicts.sort(key=lambda each: each.name)
        return HostNames(MappingProxyType(names_by_origin), MappingProxyType(origins_by_name), tuple(conflicts))

    def _keep_bare_in_steps(
        self, entries: Iterable[Origin], origins_by_name: dict[str, Origin]
    ) -> Generator[None, None, list[Origin]]:
        """Add names without a prefix to `origins_by_name`; return the entries that get no such name.

        A name without a prefix has no separator, so it never equals a name with a prefix.
        """
        is_bare_server: dict[str, bool] = {}
        others: list[Origin] = []
        for origin in entries:
            yield
            server, name = origin
            if server not in is_bare_server:
                is_bare_server[server] = self.is_bare(server)
            if not is_bare_server[server] or not self._may_be_bare(name):
                others.append(origin)
                continue
            keeper = origins_by_name.setdefault(name, origin)
            if server < keeper[0]:  # of several servers the first by name keeps the name
                origins_by_name[name] = origin
                others.append(keeper)
            elif origin != keeper:
                others.append(origin)
        return others

    def _may_be_bare(self, name: str) -> bool:
        """Return whether a server's own name may stand without a prefix.

        Hosts must take it as it is, and it must look neither as if it had a prefix nor as if it were the hub's own.
        """
        fits = bool(name) and len(name) <= self.max_chars and _replace_unfit(name) == name
        return fits and SEPARATOR not in name and not name.startswith(OWN_TOOL_PREFIX)

    def _is_allowed_plain(self, shown_name: str, cleaned_name: str) -> bool:
        """Return whether a name may be shown without digits of a hash if nothing else wants it.

        Not if the part after the prefix (`cleaned_name`) is empty, if the name is too long, or if it looks like a name
        with digits or one of the hub's own tools.
        """
        looks_own = not self.prefixed and shown_name.startswith(OWN_TOOL_PREFIX)
        return (
            bool(cleaned_name)
            and len(shown_name) <= self.max_chars
            and not looks_own
            and not _ENDS_IN_DIGITS.search(cleaned_name)
        )

    def _choose_keeper(self, rivals: list[Origin]) -> Origin | None:
        """Return which of the tools or prompts that want one name keeps the name without digits.

        That is the only one of them, or the only one whose own name needs no cleaning; None if several need none. A
        server whose alias equals the other's name comes after that other server.
        """
        if len(rivals) == 1:
            return rivals[0]
        exact = [origin for origin in rivals if _replace_unfit(origin[1]) == origin[1]]
        without_alias = [origin for origin in exact if not (self.prefixed and origin[0] in self.alias)]
        best = without_alias or exact
        return best[0] if len(best) == 1 else None

    def _name_with_digits(
        self, unnamed: list[Origin], prefixes: Mapping[str, str], origins_by_name: dict[str, Origin]
    ) -> Generator[None, None, None]:
        """Add names with digits of a hash to `origins_by_name`. Names still equal get two more digits.

        Tools whose names share all 14 digits get no name: only a server that has searched for such names has any.
        """
        for digits in range(DIGITS, MIN_NAME_CHARS, 2):
            origins_by_candidate: defaultdict[str, list[Origin]] = defaultdict(list)
            for server, name in unnamed:
                yield
                plain_name = _join_name(prefixes[server], _replace_unfit(name))
                origins_by_candidate[
                    _cut_with_digits(plain_name, _digest(server, name), digits, self.max_chars)
                ].append((server, name))
            origins_by_name |= {
                candidate: rivals[0] for candidate, rivals in origins_by_candidate.items() if len(rivals) == 1
            }
            unnamed = [each for rivals in origins_by_candidate.values() if len(rivals) > 1 for each in rivals]


def with_origin(entry: Mapping[str, Any], server: str, shown_name: str) -> dict[str, Any]:
    """Return a list's entry under its shown name, with its origin in `_meta`; its own name stands in for a title.

    The entry must have a `name`.
    """
    name, meta = entry["name"], entry.get("_meta")
    own_meta: Mapping[str, Any] = cast("Mapping[str, Any]", meta) if isinstance(meta, Mapping) else {}
    annotations = entry.get("annotations")
    has_title = name == shown_name or "title" in entry or (isinstance(annotations, Mapping) and "title" in annotations)
    return {
        **entry,
        "name": shown_name,
        **({} if has_title else {"title": name}),
        "_meta": {**own_meta, SERVER_MEMBER: server, NAME_MEMBER: name},
    }


def _replace_unfit(text: str) -> str:
    """Return a text with `_` in place of each character that hosts do not take."""
    return _UNFIT.sub("_", text)


def _join_name(prefix: str, name: str) -> str:
    return f"{prefix}{SEPARATOR}{name}" if prefix else name


def _cut_with_digits(text: str, digest: str, digits: int, max_chars: int) -> str:
    """Return a text with so many digits of a digest at its end, cut to have `max_chars` at most."""
    return f"{text[: max_chars - digits - 1]}_{digest[:digits]}"


def _digest(*parts: str) -> str:
    """Return the SHA-256 of the parts, joined by slashes, in hex."""
    # A server's name has no slash, so two pairs never make one text.
    return hashlib.sha256("/".join(parts).encode(errors="surrogatepass")).hexdigest()
