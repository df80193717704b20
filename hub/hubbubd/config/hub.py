"""The hub's own settings: `[hub]` in a file, `HUBBUBD_*` in the environment, some as command line options."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from hubbubd.config.policy.commands import AllowedCommand
from hubbubd.config.policy.hosts import PUBLIC, normalize_rule
from hubbubd.config.sections.approvals import APPROVALS, ApprovalSettings
from hubbubd.config.sections.fleet import FleetSettings
from hubbubd.config.sections.mcp import DEFAULT, DEFAULT_PROFILE, PROFILES, Profiles, ProfileSettings
from hubbubd.config.sections.network import (
    ConnectListen,
    GrantSettings,
    Host,
    Listen,
    McpListen,
    MetricsListen,
    Origin,
    PublicUrl,
    Url,
    is_local,
)
from hubbubd.config.sections.store import StoreSettings
from hubbubd.config.sections.tls import TlsFiles
from hubbubd.config.servers.server import Count, PerSecond, Seconds

ENV_PREFIX = "HUBBUBD_"

CONFINEMENT_SETTINGS = ("allow_commands", "allow_hosts", "deny_hosts", "allow_variables", "trust_local", PROFILES)
"""The settings of `Confinement`, which limits servers added over the API, and of names that these cannot have."""

LIVE_SETTINGS = frozenset(
    {
        *CONFINEMENT_SETTINGS,
        APPROVALS,
        *("connect_hosts", "connect_origins", "grants", "help_base_url", "log_level", "trace_content", "watch_config"),
        *("mcp_hosts", "mcp_login", "mcp_login_documents", "mcp_origins"),
        *("mcp_sessions_per_principal", "mcp_requests_per_session"),
        *("mcp_streams_per_principal", "mcp_events_per_session", "mcp_event_bytes_per_session", "mcp_session_idle_s"),
        *("max_servers", "max_tokens", "max_watchers", "open_requests_per_server", "receiver_tasks_per_server"),
        *("calls_per_principal", "claims_per_principal", "streams_per_principal"),
        *("rpcs_per_s_per_principal", "refused_credentials_per_s", "shutdown_grace_s"),
        *("call_history_count", "call_history_age_s", "request_history_count", "request_history_age_s"),
        *("task_history_count", "task_history_age_s", "deletion_history_age_s"),
        *("audit_history_count", "audit_history_age_s"),
    }
)
"""Settings that a reload applies while the hub runs; the others need a restart."""


VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
ExpandedPath = Annotated[Path, AfterValidator(Path.expanduser)]


class HubSettings(BaseSettings):
    """Settings of the hub. `*_s` are seconds. The limits bound memory and disk."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True, use_attribute_docstrings=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only the constructor's arguments: `load_settings` has merged all sources, the environment among them."""
        return (init_settings,)

    store: StoreSettings = StoreSettings()
    """Where records are kept; in a file this is the table `[store]`."""

    fleet: FleetSettings | None = None
    """This hub as a member of a fleet; in a file this is the table `[fleet]`. It needs `store.url`."""

    approvals: ApprovalSettings = ApprovalSettings()
    """Which calls a person has to approve; in a file this is the table `[approvals]`."""

    listen: Listen = "127.0.0.1:7878"
    """Where the API is served: HOST:PORT (port 0 picks a free one; off loopback only with TLS), or unix:PATH."""

    connect_listen: ConnectListen = None
    """Where the API is also served as Connect and gRPC-Web: HOST:PORT, as `listen`."""

    connect_hosts: tuple[Host, ...] = ()
    """Names under which `connect_listen` is reached, besides those of loopback; without a port."""

    connect_origins: tuple[Origin, ...] = ()
    """Origins whose pages may use Connect and gRPC-Web (CORS), such as http://localhost:5173; none by default."""

    mcp_listen: McpListen = None
    """Where the hub is an MCP server for hosts (streamable HTTP, at /mcp): HOST:PORT, as `listen`."""

    mcp_hosts: tuple[Host, ...] = ()
    """Names under which hosts reach `mcp_listen`, besides those of loopback; without a port."""

    mcp_origins: tuple[Origin, ...] = ()
    """Origins whose pages may use `mcp_listen`, besides those of loopback."""

    mcp_login: bool | None = None
    """Whether hosts get their token by a log-in at `mcp_listen`; by default they do, unless there is `oidc_issuer`."""

    mcp_login_documents: bool = True
    """Whether a program may be known by a document that it has on the web, and the hub fetches; else all register."""

    mcp_public_url: PublicUrl | None = None
    """The https address under which a proxy shows `mcp_listen`, without a path; the log-in is at this address."""

    mcp_profiles: Profiles = Field(default_factory=dict[str, ProfileSettings])
    """What hosts see at /mcp (`default`) and /mcp/p/NAME; in a file these are the tables `[mcp.profiles.NAME]`."""

    mcp_sessions_per_principal: Count = 100
    """The most sessions of hosts of one principal; one more ends the one that was idle for the longest time."""

    mcp_requests_per_session: Count = 100
    """The most requests of one session that are served at a time."""

    mcp_streams_per_principal: Count = 100
    """The most streams of one principal on which hosts wait for notifications (GET, `subscriptions/listen`)."""

    mcp_events_per_session: Count = 1000
    """The most events of one session that are kept for a host whose stream broke off."""

    mcp_event_bytes_per_session: Annotated[int, Field(ge=1024, le=2**40)] = 4 * 1024 * 1024
    """The most bytes of these events."""

    mcp_session_idle_s: Seconds = 86_400
    """After so long without a request a session ends. Many hosts never begin another one."""

    tls_cert: ExpandedPath | None = None
    """PEM file of the hub's certificate followed by the intermediate ones; turns TLS on, together with `tls_key`."""

    tls_key: ExpandedPath | None = None
    """PEM file of the certificate's private key, not encrypted."""

    tls_client_ca: ExpandedPath | None = None
    """PEM file of certificate authorities; callers on the network then need a client certificate of one of them."""

    grants: tuple[GrantSettings, ...] = ()
    """Roles of those who bring a client certificate or a token of the identity provider; others have none."""

    oidc_issuer: Url | None = None
    """The identity provider whose tokens (JWT) are accepted; must equal `iss` exactly."""

    oidc_audience: Annotated[str, Field(min_length=1)] | None = None
    """The audience that these tokens must have (`aud`)."""

    oidc_jwks_url: Url | None = None
    """Where its public keys are; by default as its discovery document says."""

    oidc_name_claim: Annotated[str, Field(min_length=1)] = "sub"
    """The claim that names the principal. Its values must be unique, and not for users to choose themselves."""

    oidc_roles_claim: Annotated[str, Field(min_length=1)] | None = None
    """The claim that lists a person's roles or groups; `a.b` is `b` within `a`, unless there is a claim `a.b`."""

    metrics_listen: MetricsListen = None
    """Where the hub serves Prometheus metrics, at /metrics: HOST:PORT on loopback (port 0 picks a free one)."""

    metrics_server_names: bool = True
    """Whether metrics have server names as an attribute."""

    data_dir: ExpandedPath
    """Directory of the store, the token and `client.json`; created when missing."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level of log lines written to stderr."""

    log_file: ExpandedPath | None = None
    """Where the log is written instead of stderr; a terminal still gets the warnings. It is rotated at 5 MiB."""

    trace_content: bool = False
    """Whether traces contain what callers send, servers ask and people answer. Whether to trace is up to `OTEL_*`."""

    watch_config: bool = True
    """Whether configuration files are reloaded when they change."""

    help_base_url: Url | None = None
    """Base URL of the site of the documents, for help links of errors; without it they are paths within it."""

    allow_commands: tuple[AllowedCommand, ...] = ()
    """Commands that a stdio server added over the API may start, with their arguments, variables and directories."""

    allow_hosts: tuple[Annotated[str, AfterValidator(normalize_rule)], ...] = (PUBLIC,)
    """Hosts that an HTTP server added over the API may be at: networks, names, or `public` for all of the internet."""

    deny_hosts: tuple[Annotated[str, AfterValidator(normalize_rule)], ...] = ()
    """Hosts that it may not be at, whatever `allow_hosts` says: networks and names."""

    allow_variables: tuple[VariableName, ...] = ()
    """Environment variables of the hub that `${VAR}` in a server added over the API may refer to."""

    server_variables: tuple[VariableName, ...] = ()
    """Environment variables of the hub that every server process gets, such as HTTPS_PROXY and SSL_CERT_FILE."""

    trust_local: bool = True
    """Whether the owner, by the token in the data directory, may add any command and servers at private addresses."""

    max_servers: Count = 1000
    """The most servers that may be registered."""

    max_watchers: Count = 1000
    """The most watches that may be open."""

    max_message_bytes: Annotated[int, Field(ge=64 * 1024, le=1024**3)] = 16 * 1024 * 1024
    """The largest message of the API, in either direction."""

    open_requests_per_server: Annotated[int, Field(ge=1, le=1024)] = 1000
    """The most pending requests of one server that may be open, at most 1024; beyond that it gets an error."""

    call_history_count: Count = 10_000
    """Ended calls kept in history, over all servers; each server has its own limit, too."""

    call_history_age_s: Seconds = 7 * 86_400
    """How long ended calls are kept."""

    request_history_count: Count = 10_000
    """Closed pending requests kept in history, over all servers; each server has its own limit, too."""

    request_history_age_s: Seconds = 30 * 86_400
    """How long closed pending requests are kept."""

    task_history_count: Count = 10_000
    """Ended tasks kept in history, over all servers; one whose result its server has yet to fetch does not count."""

    task_history_age_s: Seconds = 7 * 86_400
    """How long ended tasks are kept, unless their own ttl ends earlier."""

    deletion_history_age_s: Seconds = 7 * 86_400
    """How long tombstones are kept: a watcher away for longer gets `reset` instead of the deletions it missed."""

    receiver_tasks_per_server: Count = 200
    """Open tasks that the hub holds for one server; in all ten times as many. Beyond that it gets an error."""

    max_tokens: Count = 1000
    """The most API tokens that may exist."""

    rpcs_per_s_per_principal: PerSecond = 2000
    """Rate limit of RPCs per principal and second, with a burst of ten times that."""

    refused_credentials_per_s: PerSecond = 10
    """Refused credentials per second and address that get a reason, with a burst of ten times that."""

    calls_per_principal: Count = 10_000
    """The most unfinished calls of one principal, over all servers."""

    claims_per_principal: Count = 1000
    """The most pending requests that one principal may have claimed; those of its workers count apart."""

    streams_per_principal: Count | None = None
    """The most watches, workers and backups of one principal that may be open; by default as `max_watchers`."""

    audit_history_count: Count = 10_000
    """Audit log entries kept: so many changes, so many answers and so many refusals."""

    audit_history_age_s: Seconds = 90 * 86_400
    """How long audit log entries are kept."""

    shutdown_grace_s: Seconds = 10
    """How long calls may take to end after SIGTERM or SIGINT; a second signal ends the wait."""

    @property
    def tls(self) -> TlsFiles | None:
        """The TLS files, or None without TLS."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_client_ca)

    @property
    def has_login(self) -> bool:
        """Whether hosts get their tokens by a log-in at the hub: `mcp_login`, or its default."""
        return self.oidc_issuer is None if self.mcp_login is None else self.mcp_login

    @property
    def profiles(self) -> Mapping[str, ProfileSettings]:
        """The profiles by name, always with `default`, which need not be configured."""
        return {DEFAULT: DEFAULT_PROFILE, **self.mcp_profiles}

    @property
    def is_networked(self) -> bool:
        """Whether the API is reachable from other machines."""
        return not all(
            is_local(listen) for listen in (self.listen, self.connect_listen, self.mcp_listen) if listen is not None
        )
