"""Settings of the MCP endpoint: its profiles, `[mcp.profiles.NAME]`. A profile decides what a host sees of the hub."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from hubbubd.config.servers.server import OWN_NAME, ServerName
from hubbubd.errors import ConfigError

DEFAULT: Final = "default"
"""The name of the profile of /mcp, which need not be configured."""

MAX_PATTERNS: Final = 1000
"""The most patterns of a list, and aliases of a profile: each is compared with each name."""

PEOPLE: Final = "host"
"""The name of the server in records of calls of the tools that ask people (`people` of a profile).

Where a profile has these tools, no server can have this name.
"""

PROFILES: Final = "mcp_profiles"
"""The setting that has the profiles."""

PROFILE_NAME: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
"""A profile's name is a part of its endpoint's path, /mcp/p/NAME."""

_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*(_[A-Za-z0-9-]+)*")
LONGEST_HOLD_S: Final = 10_000_000
"""The most seconds for which a request is held, as any other time of the settings."""

_LONGEST_ALIAS = 14  # what `host_names` leaves to a prefix where `max_tool_name` is least


def _check_alias(text: str) -> str:
    """Return the alias of a server. Raises ValueError if it is malformed, too long, or the hub's own name."""
    if not _ALIAS.fullmatch(text) or len(text) > _LONGEST_ALIAS:
        raise ValueError(
            f"{text!r} is not an alias: letters, digits, '-' and single '_' between them, at most {_LONGEST_ALIAS}"
        )
    if text == OWN_NAME:
        raise ValueError(f"{OWN_NAME!r} is the hub itself, whose own tools are {OWN_NAME}_*")
    return text


def _check_hold(value: object) -> object:
    """Return "auto", or a number of seconds from 0 to LONGEST_HOLD_S. Raises ValueError for anything else."""
    is_seconds = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST_HOLD_S
    if value != "auto" and not is_seconds:
        raise ValueError(f'must be "auto", or seconds from 0 to {LONGEST_HOLD_S}')
    return value


Pattern = Annotated[str, Field(min_length=1, max_length=256)]
ProfileName = Annotated[str, Field(pattern=PROFILE_NAME.pattern)]
Patterns = Annotated[tuple[Pattern, ...], Field(max_length=MAX_PATTERNS)]
Alias = Annotated[str, AfterValidator(_check_alias)]
Asked = Literal["both", "host-first", "host", "inbox"]
"""Who is asked: host and inbox, of whom the first answer counts; the host if it can, else the inbox; one of them."""

AskedToApprove = Literal["both", "host", "inbox"]
"""Who approves calls: host and inbox; the host if it can and may, else the inbox; the inbox alone."""


class QuestionSettings(BaseModel):
    """Who gets a server's questions, by kind of pending request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    form: Asked = "both"
    url: Asked = "both"
    sampling: Asked = "host-first"
    roots: Asked = "host-first"
    approval: AskedToApprove = "inbox"


class ProfileSettings(BaseModel):
    """What one endpoint shows to hosts, within what their principal may call. `*_s` are seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    servers: Annotated[Patterns, Field(min_length=1)] = ("*",)
    """Patterns of the names of the servers that are shown."""

    allow_tools: Patterns = ("*",)
    """Patterns of the tools that are shown, by the names that hosts see."""

    deny_tools: Patterns = ()
    """Patterns of those that are not, whatever `allow_tools` says."""

    prefix: Literal["always", "never"] = "always"
    """Whether names of tools and prompts begin with their server's."""

    bare: Patterns = ()
    """Patterns of the servers whose tools have no prefix even so: some hosts refuse what apps call otherwise."""

    max_tool_name: Annotated[int, Field(ge=32, le=128)] = 50
    """The most characters of such a name; longer ones are cut. Hosts put their own prefix before it."""

    tools: Literal["all", "search"] = "all"
    """Whether all tools are listed, or tools to search for them and call them."""

    always: Patterns = ()
    """Patterns of the tools that are listed even so."""

    flatten_schemas: bool = False
    """Whether recursive schemas of tools are shown flat, for hosts that fail on them and then show no tool."""

    resources: bool = True
    """Whether resources are shown."""

    prompts: bool = True
    """Whether prompts are shown."""

    instructions: Annotated[str, Field(max_length=2000)] = ""
    """Put before what servers say of themselves."""

    questions: QuestionSettings = QuestionSettings()
    """Who is asked what servers ask: `both`, `host-first`, `host` or `inbox`, for each kind."""

    unattended_s: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)] = 1.0
    """An answer of a host within so long that needs no person counts as none; 0 counts all."""

    hold_s: Annotated[Literal["auto"] | float, BeforeValidator(_check_hold)] = "auto"
    """How long a request is held while a person is asked, from its beginning; `auto` is as long as the host waits."""

    on_hold_end: Literal["ticket", "error", "wait"] = "ticket"
    """What the host gets then: a result that says how to fetch the real one, an error, or nothing yet."""

    join_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = 0.0
    """A call that a principal makes again within so long joins its identical one that goes on; 0 makes another one."""

    people: bool = False
    """Whether hosts get the tools `hubbub_ask` and `hubbub_permit`, which ask people."""

    alias: Annotated[Mapping[ServerName, Alias], Field(max_length=MAX_PATTERNS)] = Field(default_factory=dict[str, str])
    """Shorter names of servers, for the names of their tools and prompts."""

    def has_server(self, name: str) -> bool:
        """Return whether hosts see a server."""
        return _matches(self.servers, name)

    def has_tool(self, visible_name: str) -> bool:
        """Return whether hosts see a tool; `visible_name` is its name for hosts (ASCII; case counts)."""
        return _matches(self.allow_tools, visible_name) and not _matches(self.deny_tools, visible_name)

    def pins_tool(self, visible_name: str) -> bool:
        """Return whether a tool, by its name for hosts, is listed even where hosts have to search for tools."""
        return _matches(self.always, visible_name)


DEFAULT_PROFILE: Final = ProfileSettings()
"""The profile `default` where it is not configured."""

Profiles = Annotated[Mapping[ProfileName, ProfileSettings], Field(max_length=MAX_PATTERNS)]


def find_alias_conflict(profiles: Mapping[str, ProfileSettings], name: str) -> str | None:
    """Return the key of the first alias that equals `name` and belongs to another server; None without one."""
    for profile, settings in profiles.items():
        for server, alias in settings.alias.items():
            if alias == name != server:
                return f"{profile}.alias.{server}"
    return None


def find_people_conflict(profiles: Mapping[str, ProfileSettings], name: str) -> str | None:
    """Return the key of the first profile whose tools ask people, if `name` is PEOPLE; otherwise None."""
    conflicts = (f"{profile}.people" for profile, settings in profiles.items() if settings.people)
    return next(conflicts, None) if name == PEOPLE else None


def check_profiles(profiles: Mapping[str, ProfileSettings], servers: Iterable[str]) -> None:
    """Raise ConfigError, with the key `mcp_profiles`, for the first conflict in a profile or with a server's name."""
    for name, settings in profiles.items():
        if settings.always and settings.tools != "search":
            raise ConfigError(PROFILES, f'{name}.always: needs tools = "search"; all tools are listed')
        if settings.bare and settings.prefix == "never":
            raise ConfigError(PROFILES, f'{name}.bare: needs prefix = "always"; no tool has a prefix')
        owners: dict[str, str] = {}
        for server, alias in settings.alias.items():
            key = f"{name}.alias.{server}"
            if not settings.has_server(server):
                raise ConfigError(PROFILES, f"{key}: the profile's servers do not include it")
            if alias in owners:
                raise ConfigError(PROFILES, f"{key}: {alias!r} is the alias of {owners[alias]}, too")
            owners[alias] = server
    for server in servers:
        if key := find_people_conflict(profiles, server):
            raise ConfigError(
                PROFILES, f"{key}: its calls are those of {PEOPLE!r}; give the server of this name another"
            )
        if key := find_alias_conflict(profiles, server):
            raise ConfigError(PROFILES, f"{key}: {server!r} is the name of another server")


def _matches(patterns: Iterable[str], name: str) -> bool:
    """Return whether a name matches one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
