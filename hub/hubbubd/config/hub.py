"""The hub's own settings: `[hub]` in a file, `HUBBUBD_*` in the environment, some as options."""

import ipaddress
import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from hubbubd.config.server import Count, Seconds

ENV_PREFIX = "HUBBUBD_"

# sockaddr_un holds 108 bytes, the last of them zero.
_UNIX_PATH_MAX = 107

# https://www.rfc-editor.org/rfc/rfc6454#section-6.2, of the web.
_ORIGIN = re.compile(r"https?://(\[[0-9a-f:]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?")


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """Where the hub keeps its state when nobody says otherwise (XDG base directory specification)."""
    share = environ.get("XDG_DATA_HOME", "")
    # The specification has relative paths ignored.
    return (Path(share) if share.startswith("/") else Path.home() / ".local" / "share") / "hubbub"


def _check_listen(text: str) -> str:
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path:
            raise ValueError("unix: needs a path")
        if len(os.fsencode(path)) > _UNIX_PATH_MAX:
            raise ValueError(f"the path of a unix socket may have {_UNIX_PATH_MAX} bytes")
        return text
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or (":" in host and bare == host):
        raise ValueError("must be HOST:PORT, [IPV6]:PORT or unix:PATH")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{port!r} is not a port (0 to 65535; 0 picks a free one)")
    if not _is_loopback(bare):
        raise ValueError(f"{bare} is not a loopback address; the network needs TLS, which this version does not offer")
    return text


def _check_connect_listen(text: str | None) -> str | None:
    return None if text is None else _check_port(text, "connect", ("connectrpc", "starlette", "uvicorn"))


def _check_metrics_listen(text: str | None) -> str | None:
    return None if text is None else _check_port(text, "telemetry", ("opentelemetry", "prometheus_client", "uvicorn"))


def _check_port(text: str, extra: str, packages: tuple[str, ...]) -> str:
    if text.startswith("unix:"):
        raise ValueError("must be HOST:PORT or [IPV6]:PORT")
    if any(find_spec(name) is None for name in packages):
        raise ValueError(f"needs packages that are not installed: pip install 'hubbub[{extra}]'")
    return _check_listen(text)


def _check_origin(text: str) -> str:
    if not _ORIGIN.fullmatch(text):
        raise ValueError(f"{text!r} is not an origin as browsers send it, for example http://localhost:5173")
    return text


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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

    listen: Annotated[str, AfterValidator(_check_listen)] = "127.0.0.1:7878"
    """Where the API is served: HOST:PORT on loopback (port 0 picks a free one), or unix:PATH."""

    connect_listen: Annotated[str | None, AfterValidator(_check_connect_listen)] = None
    """Where the API is also served as Connect and gRPC-Web: HOST:PORT on loopback (port 0 picks a free one)."""

    connect_origins: tuple[Annotated[str, AfterValidator(_check_origin)], ...] = ()
    """Origins whose pages may use Connect and gRPC-Web (CORS), such as http://localhost:5173; none by default."""

    metrics_listen: Annotated[str | None, AfterValidator(_check_metrics_listen)] = None
    """Where Prometheus finds the hub's metrics, at /metrics: HOST:PORT on loopback (port 0 picks a free one)."""

    data_dir: Annotated[Path, AfterValidator(Path.expanduser)]
    """Directory of the store, the token and `client.json`; made when missing."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is worth a log line on stderr."""

    trace_content: bool = False
    """Whether traces hold what callers send, servers ask and people answer; traces themselves are up to `OTEL_*`."""

    allow_commands: tuple[str, ...] = ()
    """Commands that a stdio server added over the API may start, compared exactly; none by default."""

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

    shutdown_grace_s: Seconds = 10
    """How long calls that are under way may take to end after SIGTERM or SIGINT; a second signal ends the wait."""
