"""The hub's own settings: `[hub]` in a file, `HUBBUBD_*` in the environment, some as options."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from hubbubd.config.commands import AllowedCommand
from hubbubd.config.hosts import PUBLIC, check_rule
from hubbubd.config.network import ConnectListen, GrantSettings, Listen, MetricsListen, Origin, Url, is_local
from hubbubd.config.server import Count, PerSecond, Seconds
from hubbubd.config.tls import TlsFiles

ENV_PREFIX = "HUBBUBD_"

CONFINING = ("allow_commands", "allow_hosts", "deny_hosts", "allow_variables")
"""Settings of what servers added over the API may do."""

LIVE = frozenset(
    {
        *CONFINING,
        *("connect_origins", "grants", "help_base_url", "log_level", "trace_content", "watch_config"),
        *("max_servers", "max_tokens", "max_watchers", "open_requests_per_server", "receiver_tasks_per_server"),
        *("calls_per_principal", "claims_per_principal", "streams_per_principal"),
        *("rpcs_per_s_per_principal", "refused_credentials_per_s", "shutdown_grace_s"),
        *("call_history_count", "call_history_age_s", "request_history_count", "request_history_age_s"),
        *("task_history_count", "task_history_age_s", "deletion_history_age_s"),
        *("audit_history_count", "audit_history_age_s"),
    }
)
"""Settings that change while the hub runs; the others hold from its start to its end."""


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """Where the hub keeps its state when nobody says otherwise (XDG base directory specification)."""
    share = environ.get("XDG_DATA_HOME", "")
    # The specification has relative paths ignored.
    return (Path(share) if share.startswith("/") else Path.home() / ".local" / "share") / "hubbub"


ExpandedPath = Annotated[Path, AfterValidator(Path.expanduser)]


class HubSettings(BaseSettings):
    """How this hub runs. `*_s` are seconds; every bound is a promise that memory and disk stay bounded."""

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
        """Only what is passed in: `load_settings` puts the layers together, from an environment that it is given."""
        return (init_settings,)

    listen: Listen = "127.0.0.1:7878"
    """Where the API is served: HOST:PORT (port 0 picks a free one; off loopback with TLS only), or unix:PATH."""

    connect_listen: ConnectListen = None
    """Where the API is also served as Connect and gRPC-Web: HOST:PORT, as `listen`."""

    connect_origins: tuple[Origin, ...] = ()
    """Origins whose pages may use Connect and gRPC-Web (CORS), such as http://localhost:5173; none by default."""

    tls_cert: ExpandedPath | None = None
    """PEM file of the hub's certificate and those between it and its authority; turns TLS on, with `tls_key`."""

    tls_key: ExpandedPath | None = None
    """PEM file of its private key, not encrypted."""

    tls_client_ca: ExpandedPath | None = None
    """PEM file of authorities; each caller on the network must then show a certificate of one of them."""

    grants: tuple[GrantSettings, ...] = ()
    """Roles for those whom client certificates and tokens of the identity provider name; nobody else has any."""

    oidc_issuer: Url | None = None
    """The identity provider whose tokens (JWT) are taken: `iss`, exactly."""

    oidc_audience: Annotated[str, Field(min_length=1)] | None = None
    """For whom these tokens must be meant: `aud`."""

    oidc_jwks_url: Url | None = None
    """Where its keys are; by default where its discovery document says."""

    oidc_name_claim: Annotated[str, Field(min_length=1)] = "sub"
    """The claim that says who somebody is. Its values must be unique, and not for its owner to choose."""

    oidc_roles_claim: Annotated[str, Field(min_length=1)] | None = None
    """The claim that lists somebody's roles or groups; `a.b` is `b` within `a`, if there is no claim `a.b`."""

    metrics_listen: MetricsListen = None
    """Where Prometheus finds the hub's metrics, at /metrics: HOST:PORT on loopback (port 0 picks a free one)."""

    metrics_server_names: bool = True
    """Whether metrics name servers."""

    data_dir: ExpandedPath
    """Directory of the store, the token and `client.json`; made when missing."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is worth a log line on stderr."""

    trace_content: bool = False
    """Whether traces hold what callers send, servers ask and people answer; traces themselves are up to `OTEL_*`."""

    watch_config: bool = True
    """Whether the files of the configuration are read again when they change."""

    help_base_url: Url | None = None
    """Where the documents are served, for the help links of errors; paths in this repository without it."""

    allow_commands: tuple[AllowedCommand, ...] = ()
    """Commands that a stdio server added over the API may start, with what arguments, variables and directories."""

    allow_hosts: tuple[Annotated[str, AfterValidator(check_rule)], ...] = (PUBLIC,)
    """Where an HTTP server added over the API may be: networks, names, `public` for all of the internet."""

    deny_hosts: tuple[Annotated[str, AfterValidator(check_rule)], ...] = ()
    """Where it may not be, whatever `allow_hosts` says: networks and names."""

    allow_variables: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], ...] = ()
    """Variables of the hub's environment that `${VAR}` in a server added over the API may stand for."""

    max_servers: Count = 1000
    """Servers that may be registered at once."""

    max_watchers: Count = 1000
    """Watches that may be open at once."""

    max_message_bytes: Annotated[int, Field(ge=64 * 1024, le=1024**3)] = 16 * 1024 * 1024
    """Largest message that the API takes or gives."""

    open_requests_per_server: Annotated[int, Field(ge=1, le=1024)] = 1000
    """Requests of one server that may be open in the inbox, at most 1024; it gets an error for more."""

    call_history_count: Count = 10_000
    """Ended calls that are kept, over all servers; each has a limit of its own, too."""

    call_history_age_s: Seconds = 7 * 86_400
    """How long ended calls are kept."""

    request_history_count: Count = 10_000
    """Closed pending requests that are kept, over all servers; each has a limit of its own, too."""

    request_history_age_s: Seconds = 30 * 86_400
    """How long closed pending requests are kept."""

    task_history_count: Count = 10_000
    """Ended tasks that are kept, over all servers; one whose result its server has yet to fetch does not count."""

    task_history_age_s: Seconds = 7 * 86_400
    """How long ended tasks are kept, unless their own ttl is over before."""

    deletion_history_age_s: Seconds = 7 * 86_400
    """How long a watcher may be away and still be told what was deleted; an older resume token gives `reset`."""

    receiver_tasks_per_server: Count = 200
    """Open tasks that the hub holds for one server, and a tenth of all it holds for it; it gets an error for more."""

    max_tokens: Count = 1000
    """Tokens of callers that there may be at once."""

    rpcs_per_s_per_principal: PerSecond = 2000
    """RPCs that one principal may begin in a second, and ten times that at once."""

    refused_credentials_per_s: PerSecond = 10
    """Refused credentials of one address of which it is told why, in a second, and ten times that at once."""

    calls_per_principal: Count = 10_000
    """Calls of one principal that have not ended, over all servers."""

    claims_per_principal: Count = 1000
    """Pending requests that one principal may have claimed, those of its workers apart."""

    streams_per_principal: Count | None = None
    """Watches, workers and backups of one principal that may be open; as many as `max_watchers` by default."""

    audit_history_count: Count = 10_000
    """Entries of the audit log that are kept: so many changes, so many answers, so many refusals."""

    audit_history_age_s: Seconds = 90 * 86_400
    """How long entries of the audit log are kept."""

    shutdown_grace_s: Seconds = 10
    """How long calls that are under way may take to end after SIGTERM or SIGINT; a second signal ends the wait."""

    @property
    def tls(self) -> TlsFiles | None:
        """The files of TLS, when it is on."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_client_ca)

    @property
    def networked(self) -> bool:
        """Whether others than programs on this machine may reach the API."""
        return not all(is_local(listen) for listen in (self.listen, self.connect_listen) if listen is not None)
