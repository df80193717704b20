"""Settings of where the API listens, and of grants for principals of other authorities (certificates, OIDC)."""

import ipaddress
import os
import re
from functools import lru_cache
from importlib.util import find_spec
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from hubbubd import bounds
from hubbubd.process import installation

UNIX = "unix:"
LAST_PORT = 65535
"""The highest port of TCP: 16 bits (RFC 9293, section 3.1)."""
CERT, OIDC, OIDC_ROLE = "cert", "oidc", "oidc-role"
"""The authorities that vouch for principals; each is a prefix that no other principal's name can have."""

# sun_path of sockaddr_un has 108 bytes, the last one a NUL.
_UNIX_PATH_MAX = 107

# RFC 9110, section 7.2, without the port.
_HOST = re.compile(r"\[[0-9a-f:.]+\]|[a-z0-9_.-]+")
_HOST_MAX = 253  # RFC 1035, section 2.3.4

# RFC 6454, section 6.2, for http and https.
_ORIGIN = re.compile(r"https?://(\[[0-9a-f:]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?")


def _check_grantee(text: str) -> str:
    """Return `who` of a grant. Raises ValueError if it is not AUTHORITY:NAME."""
    authority, _, name = text.partition(":")
    if authority not in (CERT, OIDC, OIDC_ROLE) or not name:
        raise ValueError(f"must be {CERT}:NAME, {OIDC}:NAME or {OIDC_ROLE}:VALUE, not {text!r}")
    return text


class GrantSettings(BaseModel):
    """Roles for principals that a client certificate or an identity provider's token names."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    who: Annotated[str, AfterValidator(_check_grantee)]
    """`cert:NAME` or `oidc:NAME`, where NAME may have `*`, `?` and `[...]`; or `oidc-role:VALUE`, compared exactly."""

    roles: Annotated[
        tuple[Literal["viewer", "responder", "approver", "caller", "operator", "admin"], ...], Field(min_length=1)
    ]
    """The roles granted."""

    servers: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] = ("*",)
    """Patterns of the names of the servers for which they are granted."""


def make_off_loopback_message(listen: str) -> str:
    """Return the error message for an address beyond loopback without TLS."""
    return (
        f"{listen} is not on loopback, and the network needs TLS: set tls_cert and tls_key. Callers then need a token "
        "(hubbub tokens create), a client certificate (tls_client_ca) or a token of your identity provider "
        "(oidc_issuer)"
    )


def is_local(listen: str) -> bool:
    """Return whether traffic to this address never leaves the machine."""
    return listen.startswith(UNIX) or is_loopback(listen.rpartition(":")[0].strip("[]"))


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Return whether a name or address is loopback."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _check_listen(text: str) -> str:
    """Return the address to listen at: HOST:PORT or unix:PATH. Raises ValueError for another form or a wrong part."""
    if text.startswith(UNIX):
        check_unix_path(text.removeprefix(UNIX))
        return text
    host, colon, port = text.rpartition(":")
    host_name = host.removeprefix("[").removesuffix("]") if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or (":" in host and host_name == host):
        raise ValueError("must be HOST:PORT, [IPV6]:PORT or unix:PATH")
    # A number that is too large becomes LAST_PORT + 1, which is no port either.
    if not port.isdigit() or bounds.parse_whole(port, high=LAST_PORT + 1) not in range(LAST_PORT + 1):
        raise ValueError(f"{port!r} is not a port (0 to 65535; 0 picks a free one)")
    try:
        _ = host_name == "localhost" or ipaddress.ip_address(host_name)
    except ValueError:
        raise ValueError(f"{host_name} is not an address of this machine; 0.0.0.0 and [::] are all of them") from None
    return text


def is_all_addresses(listen: str) -> bool:
    """Return whether a HOST:PORT to listen at means all addresses of this machine, such as 0.0.0.0."""
    try:
        return ipaddress.ip_address(listen.rpartition(":")[0].strip("[]")).is_unspecified
    except ValueError:
        return False


def _check_reachable_address(text: str) -> str:
    """Return the HOST:PORT at which others reach the hub, in lower case. Raises ValueError for another form."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or bounds.parse_whole(port, high=LAST_PORT + 1) not in range(1, LAST_PORT + 1):
        raise ValueError(f"{text!r} is not HOST:PORT, where others reach this hub")
    return f"{_check_host(host)}:{port}"


def check_unix_path(path: str) -> None:
    """Raise ValueError if the path of a Unix socket is empty or too long."""
    if not path:
        raise ValueError("unix: needs a path")
    if len(os.fsencode(path)) > _UNIX_PATH_MAX:
        raise ValueError(f"the path of a unix socket may have {_UNIX_PATH_MAX} bytes")


def _check_connect_listen(text: str | None) -> str | None:
    """Return the address of Connect; None stays None. Raises ValueError, also if its packages are missing."""
    return None if text is None else _check_tcp_listen(text, "connect", ("connectrpc",))


def _check_mcp_listen(text: str | None) -> str | None:
    """Return the address of the MCP endpoint; None stays None. Raises ValueError."""
    return None if text is None else _check_tcp_listen(text)


def _check_metrics_listen(text: str | None) -> str | None:
    """Return the loopback address of metrics; None stays None. Raises ValueError, also if packages are missing."""
    if text is None:
        return None
    checked = _check_tcp_listen(text, "telemetry", ("opentelemetry", "prometheus_client"))
    if not is_local(checked):
        raise ValueError(f"{text} is not on loopback, and metrics are served to every client, without a credential")
    return checked


def _check_tcp_listen(text: str, extra: str = "", packages: tuple[str, ...] = ()) -> str:
    """Return the HOST:PORT to listen at. Raises ValueError for another form, or if packages of `extra` are missing."""
    if text.startswith(UNIX):
        raise ValueError("must be HOST:PORT or [IPV6]:PORT")
    if any(find_spec(name) is None for name in packages):
        raise ValueError(f"needs packages that are not installed: {installation.make_extra_install_command(extra)}")
    return _check_listen(text)


def _check_origin(text: str) -> str:
    """Return the origin. Raises ValueError if it has not the form that browsers send."""
    if not _ORIGIN.fullmatch(text):
        raise ValueError(f"{text!r} is not an origin as browsers send it, for example http://localhost:5173")
    return text


def _check_host(text: str) -> str:
    """Return the host in lower case. Raises ValueError if it is neither a name nor an address, or has a port."""
    host = text.lower()
    if len(host) > _HOST_MAX or not _HOST.fullmatch(host):
        raise ValueError(f"{text!r} is not a host: a name or an address, an IPv6 one in brackets, without a port")
    return host


def check_url(text: str) -> str:
    """Return the URL. Raises ValueError if nothing protects its responses: it is neither https nor http on loopback."""
    url = urlsplit(text)
    if url.hostname and (url.scheme == "https" or (url.scheme == "http" and is_loopback(url.hostname))):
        return text
    raise ValueError(f"{text!r} must be an https address (http is for loopback only)")


def _check_public_url(text: str) -> str:
    """Return the URL at which browsers and hosts see the endpoint, without a path. Raises ValueError."""
    url = urlsplit(check_url(text))
    origin = f"{url.scheme}://{url.netloc}"
    if url.path.rstrip("/") not in ("", "/mcp") or url.query or url.fragment or not _ORIGIN.fullmatch(origin):
        raise ValueError(f"{text!r} must be an address without a path, for example https://hub.example.com")
    return origin


Listen = Annotated[str, AfterValidator(_check_listen)]
ConnectListen = Annotated[str | None, AfterValidator(_check_connect_listen)]
McpListen = Annotated[str | None, AfterValidator(_check_mcp_listen)]
MetricsListen = Annotated[str | None, AfterValidator(_check_metrics_listen)]
Origin = Annotated[str, AfterValidator(_check_origin)]
Reached = Annotated[str, AfterValidator(_check_reachable_address)]
Host = Annotated[str, AfterValidator(_check_host)]
Url = Annotated[str, AfterValidator(check_url)]
PublicUrl = Annotated[str, AfterValidator(_check_public_url)]
