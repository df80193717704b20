"""The rules of a server's options beside their types: which values callers of the API may set, and if it reconnects.

Each field of `ServerConfig` has one `Option`. The limits hold for callers; in a file only the type does.
"""

from dataclasses import dataclass
from typing import Final, Protocol, cast

LONGEST_S: Final = 7 * 86_400.0
"""The longest timeout or backoff, in seconds, of a server added over the API."""

SHORTEST_PAUSE_S: Final = 0.1
"""The shortest backoff, in seconds, of a server added over the API."""

SHORTEST_PING_S: Final = 1.0
"""Seconds between two pings of a server that was added over the API."""


class Limit(Protocol):
    """The values that a caller of the API may set; the default of the option is always allowed."""

    def find_problem(self, value: object, default: object, hub: object) -> str | None:
        """Return why the value is refused; None if it is allowed. `hub` are the hub's settings."""
        ...


class AnyValue:
    """Every value is allowed: it affects only the server's own callers, or other rules decide.

    Commands, hosts, headers and references have rules of their own (`confinement`).
    """

    def find_problem(self, value: object, default: object, hub: object) -> None:
        """Return None: every value is allowed."""


class FilesOnly:
    """No value but the default is allowed."""

    def find_problem(self, value: object, default: object, hub: object) -> str:
        """Return why the value is refused: every value but the default is."""
        return "can be set in a configuration file only"


@dataclass(frozen=True, slots=True)
class SecondsFrom:
    """A number of seconds, or a tuple of them, from `shortest` to LONGEST_S."""

    shortest: float
    zero_allowed: bool = False
    """Whether 0, which turns the option off, is allowed, too."""

    def find_problem(self, value: object, default: object, hub: object) -> str | None:
        """Return why the seconds are refused; None if they are allowed."""
        values = cast("tuple[float, ...]", value if isinstance(value, tuple) else (value,))
        if self.zero_allowed and values == (0,):
            return None
        if all(self.shortest <= seconds <= LONGEST_S for seconds in values):
            return None
        return f"must be {'0, or ' if self.zero_allowed else ''}{self.shortest:g} to {LONGEST_S:.0f} s"


@dataclass(frozen=True, slots=True)
class AtMost:
    """At most the option's default, or the hub's own setting of that name if it is larger."""

    setting: str | None = None

    def find_problem(self, value: object, default: object, hub: object) -> str | None:
        """Return why the number is refused; None if it is allowed: up to the default or the hub's own setting."""
        own_default = cast("float", default or 0)
        hub_setting = own_default if self.setting is None else cast("float", getattr(hub, self.setting))
        highest = max(hub_setting, own_default)
        if cast("float", value) <= highest:
            return None
        source = f", as the hub's {self.setting}" if self.setting is not None and hub_setting == highest else ""
        return f"may be at most {highest}{source}"


ANY_VALUE: Final = AnyValue()
FILES_ONLY: Final = FilesOnly()


@dataclass(frozen=True, slots=True)
class Option:
    """The rules of one option of a server."""

    limit: Limit
    """The values that callers of the API may set."""

    reconnects: bool = False
    """Whether a change needs a new connection: which server it is, how it is reached, what it learns about the hub, and
    how it is read. Others are applied from the next call, request, attempt or interval on."""

    default_text: str | None = None
    """The text in place of the default in docs/configuration.md."""
