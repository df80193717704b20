"""One server's configuration: how it is reached, and how the hub treats it."""

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Self, cast, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    field_serializer,
    model_validator,
)

from hubbubd.config.servers.confirmed import Confirm
from hubbubd.config.servers.options import (
    ANY_VALUE,
    FILES_ONLY,
    SHORTEST_PAUSE_S,
    SHORTEST_PING_S,
    AtMost,
    Option,
    SecondsFrom,
)
from hubbubd.config.servers.secrecy import list_spellings
from hubbubd.config.servers.urls import WITHHELD, check_url, withhold_query

Seconds = Annotated[float, Field(gt=0, le=10_000_000, allow_inf_nan=False)]
PerSecond = Annotated[float, Field(ge=0.01, le=1_000_000, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
ServerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
OWN_NAME: Final = "hubbub"
"""The hub itself, to its hosts: no server can have this name, nor an alias of one."""

OAuthScope = Annotated[str, Field(pattern=r"^[\x21\x23-\x5B\x5D-\x7E]+( [\x21\x23-\x5B\x5D-\x7E]+)*$", max_length=4096)]
"""Scopes, separated by spaces (RFC 6749, section 3.3)."""

TransportName = Literal["stdio", "http", "sse"]
Revision = Literal["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
REVISIONS: Final[tuple[str, ...]] = get_args(Revision)
"""The revisions of MCP that the hub speaks, oldest first."""

Roots = Literal["ask"] | tuple[dict[str, Any], ...]
"""The answer to `roots/list`: these MCP roots, or "ask" to make it a pending request."""


RESOLVED: Final = object()
"""Validation context of a configuration whose references have been replaced: a `${` left in it is literal text."""


class OAuthConfig(BaseModel):
    """The OAuth client of a server. Without any of it, the hub registers itself dynamically.

    `issuer` names the authorization server of the client credentials; they are sent nowhere else.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    client_id: str | None = None
    client_secret: SecretStr | None = None
    private_key: SecretStr | None = None
    signing_algorithm: str = "RS256"
    client_metadata_url: str | None = None
    issuer: str | None = None
    redirect_port: Annotated[int, Field(ge=0, le=65535)] = 0
    scope: OAuthScope | None = None
    resource: bool | Annotated[str, Field(min_length=1, max_length=2048)] = True

    @model_validator(mode="after")
    def _check_client_kind(self) -> Self:
        """Raise ValueError for options that do not belong to the same kind of client."""
        if self.client_metadata_url and (self.client_id or self.grant == "client_credentials"):
            raise ValueError("client_metadata_url stands in place of a client_id")
        if (self.client_secret or self.private_key) and not self.client_id:
            raise ValueError("a client_secret or private_key belongs to a client_id")
        if self.grant == "client_credentials" and (self.client_secret is None) == (self.private_key is None):
            raise ValueError("client_credentials need a client_secret or a private_key")
        if self.grant == "authorization_code" and self.private_key:
            raise ValueError("a private_key goes with grant client_credentials")
        return self


DURABLE_ANSWER_S: Final = 86_400.0
"""Seconds for people to answer requests that wait in records alone: of rounds and tasks."""

PLAIN_ANSWER_S: Final = 3600.0
"""Seconds for people to answer a server that waits on the wire, and holds its resources meanwhile."""


class ServerConfig(BaseModel):
    """A server as configured, with `${...}` references; they are resolved only to connect. `*_s` are seconds.

    The docstrings of the options are rows of docs/configuration.md (`make gen`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    _unknown: dict[str, Any] = PrivateAttr(default_factory=dict[str, Any])

    name: Annotated[ServerName, Option(ANY_VALUE, reconnects=True)]
    """Unique name: letters, digits, `_`, `-` and `.`, at most 64."""

    command: Annotated[str | None, Option(ANY_VALUE, reconnects=True)] = None
    """The program to start, found on `PATH` or by its path."""

    args: Annotated[tuple[str, ...], Option(ANY_VALUE, reconnects=True)] = ()
    """Its arguments."""

    env: Annotated[dict[str, SecretStr], Option(ANY_VALUE, reconnects=True)] = Field(
        default_factory=dict[str, SecretStr]
    )
    """Variables added to its [environment](security.md#what-a-process-is-given)."""

    cwd: Annotated[str | None, Option(ANY_VALUE, reconnects=True, default_text="the hub's")] = None
    """Its working directory."""

    url: Annotated[str | None, Option(ANY_VALUE, reconnects=True)] = None
    """Where it is reached."""

    transport: Annotated[TransportName, Option(ANY_VALUE, reconnects=True, default_text="by the above")] = "stdio"
    """`stdio`, `http` or `sse`. With `http`, a url that refuses POSTs is tried as `sse`, too."""

    headers: Annotated[dict[str, SecretStr], Option(ANY_VALUE, reconnects=True)] = Field(
        default_factory=dict[str, SecretStr]
    )
    """Sent with every HTTP request."""

    oauth: Annotated[OAuthConfig | None, Option(FILES_ONLY, reconnects=True)] = None
    """How the hub gets access, see below."""

    ca: Annotated[str | None, Option(FILES_ONLY, reconnects=True)] = None
    """A PEM file of a private authority, trusted for this server besides the system's; in files only."""

    cookies: Annotated[bool, Option(FILES_ONLY, reconnects=True)] = False
    """Whether its cookies go back to it during a connection, for balancers with sticky sessions; in files only."""

    allow_tools: Annotated[tuple[str, ...], Option(ANY_VALUE)] = ("*",)
    """Patterns of the tools that may be called and are shown."""

    deny_tools: Annotated[tuple[str, ...], Option(ANY_VALUE)] = ()
    """Patterns of the tools that may not, whatever `allow_tools` says."""

    confirm: Annotated[Confirm, Option(ANY_VALUE)] = ()
    """Which calls a person has to [approve](#approvals): `"writes"` for tools that are not marked read-only, and
    patterns of others: `["writes", "read_secret*"]`."""

    connect_timeout_s: Annotated[Seconds, Option(SecondsFrom(0))] = 30
    """From the start to the end of the handshake."""

    call_timeout_s: Annotated[Seconds, Option(SecondsFrom(0))] = 300
    """A call without progress for so long fails; waiting for a person does not count."""

    call_max_s: Annotated[Seconds, Option(SecondsFrom(0))] = 3600
    """A call that takes longer in all fails; waiting for a person does not count."""

    progress_resets_timeout: Annotated[bool, Option(ANY_VALUE)] = True
    """Whether progress restarts `call_timeout_s`."""

    ping_interval_s: Annotated[
        float,
        Field(ge=0, le=10_000_000, allow_inf_nan=False),
        Option(SecondsFrom(SHORTEST_PING_S, zero_allowed=True)),
    ] = 30
    """Between two pings of an idle connection; `0` sends none, at most 10,000,000."""

    ping_timeout_s: Annotated[Seconds, Option(SecondsFrom(0))] = 10
    """A ping without an answer for so long is a miss; two misses are a lost connection."""

    retries: Annotated[int, Field(ge=-1, le=1_000_000_000), Option(ANY_VALUE)] = -1
    """Attempts to connect again; `-1` never gives up on an error that can pass; at most 1,000,000,000."""

    backoff_s: Annotated[tuple[Seconds, ...], Field(min_length=1), Option(SecondsFrom(SHORTEST_PAUSE_S))] = (1, 2, 4)
    """The pause before each; the last one is doubled from then on, and each is stretched at random by up to a fifth."""

    backoff_max_s: Annotated[Seconds, Option(SecondsFrom(SHORTEST_PAUSE_S))] = 60
    """The longest pause."""

    stable_after_s: Annotated[float, Field(ge=0, le=10_000_000, allow_inf_nan=False), Option(SecondsFrom(0))] = 10
    """A connection that lasts so long resets the count of attempts; `0` to 10,000,000, less than a second counts as
    one."""

    retryable_errors: Annotated[tuple[str, ...] | None, Option(ANY_VALUE, default_text="built in")] = None
    """The codes after which connecting again makes sense."""

    max_in_flight: Annotated[int, Field(ge=1, le=1024), Option(AtMost("calls_per_principal"))] = 1
    """Calls that may be on the wire at once; others wait."""

    max_queued: Annotated[Count, Option(AtMost("calls_per_principal"))] = 1000
    """Calls that may wait, at most 1,000,000,000, and 64 MiB of params in all (unless nothing else waits);
    `QUEUE_FULL`."""

    answer_timeout_s: Annotated[Seconds | None, Option(SecondsFrom(0), default_text="a day, or an hour")] = None
    """How long a pending request waits. Without it: a day where it waits in records alone (rounds, tasks), an hour
    where the server waits on the wire."""

    auto_reject_on_timeout: Annotated[bool, Option(ANY_VALUE)] = True
    """Whether the hub then refuses it on behalf of people."""

    timeout_message: Annotated[str, Option(ANY_VALUE)] = "Nobody answered in time"
    """The message to the server then."""

    sampling: Annotated[bool, Option(ANY_VALUE, reconnects=True)] = True
    """Whether the hub declares that the server may ask for model output."""

    elicitation: Annotated[bool, Option(ANY_VALUE, reconnects=True)] = True
    """Whether the hub declares that it may ask people."""

    apps: Annotated[bool, Option(ANY_VALUE, reconnects=True)] = True
    """Whether its tools may have pages, which hosts show (MCP Apps)."""

    roots: Annotated[Roots, Option(ANY_VALUE)] = ()
    """The directories that the hub tells it (`{ uri, name }`); `[]` tells none. `"ask"` asks the host of the call if
    `questions.roots` says so, else a person."""

    receiver_tasks: Annotated[bool, Option(ANY_VALUE, reconnects=True)] = True
    """Whether the hub declares that it may ask as a task."""

    receiver_task_ttl_s: Annotated[Seconds, Option(SecondsFrom(0))] = 3600
    """The ttl of such a task if the server names none."""

    protocol: Annotated[Literal["auto", Revision], Option(ANY_VALUE, reconnects=True)] = "auto"
    """The revision of MCP to speak; `auto` finds out."""

    resume: Annotated[bool, Option(ANY_VALUE)] = True
    """Whether a call that waits for answers is sent again after a restart of the hub (at-least-once)."""

    max_message_bytes: Annotated[
        int, Field(ge=1024, le=1024**3), Option(AtMost("max_message_bytes"), reconnects=True)
    ] = 16 * 1024 * 1024
    """The largest message from the server, 1024 to 1073741824; then the request fails, or the connection is lost."""

    max_messages_per_s: Annotated[PerSecond, Option(AtMost(), reconnects=True)] = 1000
    """Messages per second that the hub has not asked for, ten times that at once; then the server is [read more
    slowly](#servers-that-flood)."""

    max_bytes_per_s: Annotated[int, Field(ge=1024, le=2**40), Option(AtMost(), reconnects=True)] = 16 * 1024 * 1024
    """Bytes per second of such messages, likewise."""

    max_open_request_bytes: Annotated[int, Field(ge=1024, le=2**40), Option(AtMost())] = 64 * 1024 * 1024
    """Bytes of its open pending requests; then the server gets an error, `TOO_MANY_OPEN_REQUESTS`."""

    one_question_at_a_time: Annotated[bool, Option(ANY_VALUE)] = False
    """Whether calls are sent one at a time, and none while one waits for a person, so that only one can be the cause of
    a question. Overrides `max_in_flight`."""

    call_history_count: Annotated[Count, Option(AtMost("call_history_count"))] = 1000
    """Ended calls of this server that are kept."""

    call_history_age_s: Annotated[Seconds | None, Option(AtMost("call_history_age_s"), default_text="the hub's")] = None
    """How long, at most as the hub's."""

    request_history_count: Annotated[Count, Option(AtMost("request_history_count"))] = 1000
    """Closed pending requests of this server that are kept."""

    request_history_age_s: Annotated[
        Seconds | None, Option(AtMost("request_history_age_s"), default_text="the hub's")
    ] = None
    """How long, at most as the hub's."""

    task_history_count: Annotated[Count, Option(AtMost("task_history_count"))] = 1000
    """Ended tasks of this server that are kept."""

    task_history_age_s: Annotated[Seconds | None, Option(AtMost("task_history_age_s"), default_text="the hub's")] = None
    """How long, at most as the hub's."""

    @model_validator(mode="before")
    @classmethod
    def _choose_transport(cls, value: Any) -> Any:
        """Set the transport to `http` if there is a url and no transport."""
        if isinstance(value, dict) and "transport" not in value and "url" in value:
            return {**cast("dict[str, Any]", value), "transport": "http"}
        return cast("Any", value)

    @model_validator(mode="after")
    def _check_transport(self, info: ValidationInfo) -> Self:
        """Raise ValueError for options that do not fit the transport, and for an invalid url."""
        if not self.command and not self.url:
            raise ValueError("a server needs a command that starts it, or the url where it is")
        if self.transport == "stdio" and (not self.command or self.url):
            raise ValueError("a stdio server needs a command and no url")
        if self.transport != "stdio" and (not self.url or self.command):
            raise ValueError(f"a server over {self.transport} needs a url and no command")
        for key in ("oauth", "ca", "cookies"):
            if getattr(self, key) and self.transport == "stdio":
                raise ValueError(f"{key} is for servers over http and sse")
        if self.url:
            check_url(self.url, resolved=info.context is RESOLVED)
        return self

    @field_serializer("url", when_used="json")
    def _withhold_query(self, url: str | None) -> str | None:
        """Return the url as it is stored: without its query, which may be secret. None stays None."""
        return None if url is None else withhold_query(url)

    def is_default(self, key: str) -> bool:
        """Return whether the option `key` has its default value."""
        return getattr(self, key) == type(self).model_fields[key].get_default(call_default_factory=True)

    @property
    def fingerprint(self) -> str:
        """Hash of the server's identity: its transport, command with arguments, and url; not of its other options."""
        identity = [self.transport, self.command, list(self.args), self.url]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]

    def find_answer_limit_s(self, *, durable: bool) -> float:
        """Return the seconds that people have to answer; with `durable` no server waits on the wire meanwhile."""
        default_s = DURABLE_ANSWER_S if durable else PLAIN_ANSWER_S
        return default_s if self.answer_timeout_s is None else self.answer_timeout_s

    @property
    def limits_tools(self) -> bool:
        """Whether some tools may not be called."""
        return bool(self.deny_tools) or "*" not in self.allow_tools

    def has_tool(self, name: object) -> bool:
        """Return whether a tool may be called and listed.

        A pattern of `deny_tools` also matches names that a careless server would treat as the same (Unicode, case,
        spaces).
        """
        if not self.limits_tools:
            return True
        if not isinstance(name, str) or not _matches(self.allow_tools, name):
            return False
        return not _matches(map(_fold_text, self.deny_tools), _fold_text(name)) and not _matches(self.deny_tools, name)

    def collect_secrets(self) -> dict[str, Any]:
        """Return the secrets by option (`env`, `headers`, a `url` with a query); records are stored without them."""
        secrets: dict[str, Any] = {
            member: {name: value.get_secret_value() for name, value in values.items()}
            for member, values in (("env", self.env), ("headers", self.headers))
            if values
        }
        return secrets | {"url": self.url} if self.url and "?" in self.url else secrets

    @property
    def lacks_secrets(self) -> bool:
        """Whether a secret was lost, so that the configuration has a placeholder instead."""
        values = [*self.env.values(), *self.headers.values()]
        return any(value.get_secret_value() == WITHHELD for value in values) or f"?{WITHHELD}" in (self.url or "")

    def without_placeholders(self) -> "ServerConfig":
        """Return the configuration without the placeholders of lost secrets, for checks that need no secrets."""
        known_values = {
            field: {key: value for key, value in values.items() if value.get_secret_value() != WITHHELD}
            for field, values in (("env", self.env), ("headers", self.headers))
        }
        url = None if self.url is None else self.url.replace(f"?{WITHHELD}", "")
        return self.model_copy(update={**known_values, "url": url})

    def list_known_secrets(self) -> list[str]:
        """Return the secrets of a resolved configuration, to redact from all output.

        A value whose name or form says that it is no secret (`secrecy`) is left out, as it occurs in ordinary text.
        """
        query = (self.url or "").partition("?")[2].partition("#")[0]
        pairs = [part.partition("=")[::2] for part in query.split("&")]
        named_values = [(name, value.get_secret_value()) for name, value in (*self.env.items(), *self.headers.items())]
        named_values += [("token", query), *pairs]
        if self.oauth is not None:
            oauth_secrets = (self.oauth.client_secret, self.oauth.private_key)
            named_values += [
                ("client_secret", value.get_secret_value()) for value in oauth_secrets if value is not None
            ]
        return [each for name, value in named_values for each in list_spellings(name, value)]

    def with_secrets(self, secrets: dict[str, Any]) -> "ServerConfig":
        """Return the configuration with the secrets of `collect_secrets` put back. Raises ValidationError."""
        return type(self).model_validate(self.model_dump() | secrets).with_unknown(self._unknown)

    @property
    def unknown(self) -> dict[str, Any]:
        """The options of a stored configuration that this version does not know, as they were stored."""
        return self._unknown

    def with_unknown(self, options: dict[str, Any]) -> "ServerConfig":
        """Return the configuration with options that this version does not know, to be stored with it."""
        copy = self.model_copy()
        copy._unknown = options
        return copy


OPTIONS: Final[Mapping[str, Option]] = MappingProxyType(
    {
        key: next(each for each in field.metadata if isinstance(each, Option))
        for key, field in ServerConfig.model_fields.items()
    }
)
"""The rules of each option, by its key."""


def needs_connection(before: ServerConfig, after: ServerConfig) -> bool:
    """Return whether a change of configuration needs a new connection."""
    return any(option.reconnects and getattr(before, key) != getattr(after, key) for key, option in OPTIONS.items())


def _matches(patterns: Iterable[str], name: str) -> bool:
    """Return whether a name matches one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _fold_text(text: str) -> str:
    """Return a text without differences of case, width and outer spaces, to compare names."""
    return unicodedata.normalize("NFKC", text).casefold().strip()
