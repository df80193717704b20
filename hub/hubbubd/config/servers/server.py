"""One server's configuration: how it is reached, and how the hub treats it."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal, Self, cast, get_args
from urllib.parse import urlsplit

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

from hubbubd.config.servers.secrecy import spellings

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

_NO_USER: Final = "a url has no user and password; use headers"
_USER: Final = re.compile(r"https?://[^/?#]*@", re.IGNORECASE)

WITHHELD: Final = "**********"
"""The placeholder of a secret in the store."""


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
    def _one_kind_of_client(self) -> Self:
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
"""Seconds in which people answer what waits in records alone: rounds, and what tasks ask."""

PLAIN_ANSWER_S: Final = 3600.0
"""Seconds in which people answer a server that waits for it on the wire, with what it keeps meanwhile."""


class ServerConfig(BaseModel):
    """A server as configured, with `${...}` references; they are resolved only to connect. `*_s` are seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    _unknown: dict[str, Any] = PrivateAttr(default_factory=dict[str, Any])

    name: ServerName
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    cwd: str | None = None
    url: str | None = None
    transport: TransportName = "stdio"
    headers: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    oauth: OAuthConfig | None = None
    ca: str | None = None
    cookies: bool = False

    allow_tools: tuple[str, ...] = ("*",)
    deny_tools: tuple[str, ...] = ()

    connect_timeout_s: Seconds = 30
    call_timeout_s: Seconds = 300
    call_max_s: Seconds = 3600
    progress_resets_timeout: bool = True
    ping_interval_s: Annotated[float, Field(ge=0, le=10_000_000, allow_inf_nan=False)] = 30
    ping_timeout_s: Seconds = 10
    retries: Annotated[int, Field(ge=-1, le=1_000_000_000)] = -1
    backoff_s: Annotated[tuple[Seconds, ...], Field(min_length=1)] = (1, 2, 4)
    backoff_max_s: Seconds = 60
    stable_after_s: Annotated[float, Field(ge=0, le=10_000_000, allow_inf_nan=False)] = 10
    retryable_errors: tuple[str, ...] | None = None
    max_in_flight: Annotated[int, Field(ge=1, le=1024)] = 1
    max_queued: Count = 1000
    answer_timeout_s: Seconds | None = None
    auto_reject_on_timeout: bool = True
    timeout_message: str = "Nobody answered in time"
    sampling: bool = True
    elicitation: bool = True
    roots: Roots = ()
    receiver_tasks: bool = True
    receiver_task_ttl_s: Seconds = 3600
    protocol: Literal["auto", Revision] = "auto"
    resume: bool = True
    max_message_bytes: Annotated[int, Field(ge=1024, le=1024**3)] = 16 * 1024 * 1024
    max_messages_per_s: PerSecond = 1000
    max_bytes_per_s: Annotated[int, Field(ge=1024, le=2**40)] = 16 * 1024 * 1024
    max_open_request_bytes: Annotated[int, Field(ge=1024, le=2**40)] = 64 * 1024 * 1024
    one_question_at_a_time: bool = False
    call_history_count: Count = 1000
    call_history_age_s: Seconds | None = None
    request_history_count: Count = 1000
    request_history_age_s: Seconds | None = None
    task_history_count: Count = 1000
    task_history_age_s: Seconds | None = None

    @model_validator(mode="before")
    @classmethod
    def _choose_transport(cls, value: Any) -> Any:
        if isinstance(value, dict) and "transport" not in value and "url" in value:
            return {**cast("dict[str, Any]", value), "transport": "http"}
        return cast("Any", value)

    @model_validator(mode="after")
    def _one_way_to_reach_it(self, info: ValidationInfo) -> Self:
        if not self.command and not self.url:
            raise ValueError("a server needs a command that starts it, or the url where it is")
        if self.transport == "stdio" and (not self.command or self.url):
            raise ValueError("a stdio server needs a command and no url")
        if self.transport != "stdio" and (not self.url or self.command):
            raise ValueError(f"a server over {self.transport} needs a url and no command")
        if self.oauth and self.transport == "stdio":
            raise ValueError("oauth is for servers over http and sse")
        if self.ca and self.transport == "stdio":
            raise ValueError("ca is for servers over http and sse")
        if self.cookies and self.transport == "stdio":
            raise ValueError("cookies is for servers over http and sse")
        if self.url:
            _check_url(self.url, resolved=info.context is RESOLVED)
        return self

    @field_serializer("url", when_used="json")
    def _without_query(self, url: str | None) -> str | None:
        head, mark, rest = (url or "").partition("?")
        return f"{head}?{WITHHELD}{''.join(rest.partition('#')[1:])}" if mark else url

    @property
    def fingerprint(self) -> str:
        """Hash of the server's identity: its transport, command with arguments, and url; not of its other options."""
        identity = [self.transport, self.command, list(self.args), self.url]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]

    def answered_within_s(self, *, durable: bool) -> float:
        """Return how many seconds people have to answer; `durable` is what nobody waits for on the wire."""
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
        return not _matches(map(_plain, self.deny_tools), _plain(name)) and not _matches(self.deny_tools, name)

    def secrets(self) -> dict[str, Any]:
        """Return what to keep out of the store, as JSON: values of variables and headers, and a url with a query."""
        found: dict[str, Any] = {
            member: {name: value.get_secret_value() for name, value in values.items()}
            for member, values in (("env", self.env), ("headers", self.headers))
            if values
        }
        return found | {"url": self.url} if self.url and "?" in self.url else found

    @property
    def lacks_secrets(self) -> bool:
        """Whether it has a placeholder whose secret was lost."""
        values = [*self.env.values(), *self.headers.values()]
        return any(value.get_secret_value() == WITHHELD for value in values) or f"?{WITHHELD}" in (self.url or "")

    def without_placeholders(self) -> "ServerConfig":
        """Return the configuration without what it lacks, for what does not depend on secrets."""
        known = {
            field: {key: value for key, value in values.items() if value.get_secret_value() != WITHHELD}
            for field, values in (("env", self.env), ("headers", self.headers))
        }
        url = None if self.url is None else self.url.replace(f"?{WITHHELD}", "")
        return self.model_copy(update={**known, "url": url})

    def known_secrets(self) -> list[str]:
        """Return the secrets of a resolved configuration, to redact from all output.

        What is none by its name or its form (`secrecy`) is left out: it occurs in what everybody writes.
        """
        query = (self.url or "").partition("?")[2].partition("#")[0]
        pairs = [part.partition("=")[::2] for part in query.split("&")]
        named = [(name, value.get_secret_value()) for name, value in (*self.env.items(), *self.headers.items())]
        named += [("token", query), *pairs]
        if self.oauth is not None:
            own = (self.oauth.client_secret, self.oauth.private_key)
            named += [("client_secret", value.get_secret_value()) for value in own if value is not None]
        return [each for name, value in named for each in spellings(name, value)]

    def with_secrets(self, kept: dict[str, Any]) -> "ServerConfig":
        """Return the configuration with the secrets that `secrets` returned put back. Raises ValidationError."""
        return type(self).model_validate(self.model_dump() | kept).with_unknown(self._unknown)

    @property
    def unknown(self) -> dict[str, Any]:
        """The options of a stored configuration that this version does not know, as they were stored."""
        return self._unknown

    def with_unknown(self, options: dict[str, Any]) -> "ServerConfig":
        """Return the configuration with options that this version does not know, to be stored with it."""
        copy = self.model_copy()
        copy._unknown = options
        return copy


def _check_url(url: str, *, resolved: bool) -> None:
    """Raise ValueError for an invalid URL. One with references is checked once more when they are resolved."""
    if not url.lower().startswith(("http://", "https://", *(() if resolved else ("${",)))):
        raise ValueError("a url starts with http:// or https://")
    if "${" in url and not resolved:
        if _USER.match(url):
            raise ValueError(_NO_USER)
        return
    import httpx2  # lazy: few need it in their first second, and it takes a tenth of the start

    try:
        parsed = httpx2.URL(url)
        parts = urlsplit(url)
        _ = parts.port
    except (httpx2.InvalidURL, ValueError, UnicodeError) as exc:
        raise ValueError(f"not a url: {exc}") from None
    if parsed.userinfo or "@" in parts.netloc:
        raise ValueError(_NO_USER)
    if not parsed.host:
        raise ValueError("a url names a host")
    if "\\" in parts.netloc or parts.hostname is None:
        raise ValueError("a url names one host")


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().strip()
