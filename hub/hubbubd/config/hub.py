"""The hub's own settings: `[hub]` in a file, `HUBBUBD_*` in the environment, some as options."""

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from hubbubd.config.server import Count, Seconds

ENV_PREFIX = "HUBBUBD_"

# sockaddr_un holds 108 bytes, the last of them zero.
_UNIX_PATH_MAX = 107


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

    data_dir: Annotated[Path, AfterValidator(Path.expanduser)]
    """Directory of the store, the token and `client.json`; made when missing."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is worth a log line on stderr."""

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
