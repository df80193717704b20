"""Where the hub is: from arguments, the environment, or the `client.json` that a running hub leaves behind."""

import json
import os
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple, cast

from hubbub_client.errors import InvalidArgument, Unavailable

UNIX, HTTP, HTTPS = "unix:", "http://", "https://"


class Where(NamedTuple):
    """What is given to find the hub; None for what the environment or `client.json` say."""

    address: str | None = None
    token: str | None = None
    data_dir: str | Path | None = None
    ca: str | Path | None = None
    cert: str | Path | None = None
    key: str | Path | None = None


@dataclass(frozen=True, slots=True)
class Tls:
    """As PEM: the authorities to believe (None: those that gRPC brings along), and what to show."""

    ca: bytes | None = None
    cert: bytes | None = None
    key: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`address` is as found, `source` says in words where; `target` is HOST:PORT or unix:PATH."""

    address: str
    token: str | None = field(repr=False)
    source: str
    target: str
    tls: Tls | None


def default_data_dir() -> Path:
    """`hubbub` below XDG_DATA_HOME (https://specifications.freedesktop.org/basedir-spec)."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "hubbub"


def discover(where: Where) -> Endpoint:
    """The hub to talk to; reads the disk each time, since a restarted hub may have moved.

    Raises Unavailable when no address is found anywhere, and InvalidArgument for one that is none, for one that would
    show the token to the network, and for files of TLS that cannot be read.
    """
    source = "as given" if where.address else "from HUBBUB_ADDRESS"
    address = where.address or os.environ.get("HUBBUB_ADDRESS")
    token = where.token or os.environ.get("HUBBUB_TOKEN")
    if not (address and token):
        file = Path(where.data_dir or os.environ.get("HUBBUB_DATA_DIR") or default_data_dir()) / "client.json"
        found = _client_file(file)
        if address:
            # The token of one hub is not shown to another.
            token = token or (found.get("token") if found.get("address") == address else None)
        elif "address" in found:
            address, token, source = found["address"], token or found.get("token"), f"from {file}"
        else:
            raise Unavailable(
                f"no hub found: {file} is missing or not readable; start hubbubd, or name the hub's address and token",
                reason="HUB_UNREACHABLE",
                metadata={"client_file": str(file)},
            )
    target, secure = _target(address)
    return Endpoint(address, token, source, target, _tls(where) if secure else None)


def _target(address: str) -> tuple[str, bool]:
    """What to connect to, and whether by TLS: wherever others could listen, and where https:// asks for it."""
    if address.startswith(UNIX):
        return address, False
    plain = address.startswith(HTTP)
    target = address.removeprefix(HTTPS).removeprefix(HTTP).rstrip("/")
    host, colon, port = target.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or "/" in target:
        raise InvalidArgument(f"{address!r} is not HOST:PORT, https://HOST:PORT or unix:PATH", reason="ADDRESS_INVALID")
    local = is_loopback(host.strip("[]"))
    if plain and not local:
        raise InvalidArgument(
            f"{address} is not on this machine: without TLS everybody on the way could read the token; use https://",
            reason="PLAINTEXT_REFUSED",
        )
    return target, address.startswith(HTTPS) or not local


def is_loopback(host: str) -> bool:
    """Whether this name or address never leaves the machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _tls(where: Where) -> Tls:
    cert = _pem("cert", where.cert)
    # One file may hold both.
    return Tls(_pem("ca", where.ca), cert, _pem("key", where.key) or cert)


def _pem(name: str, given: str | Path | None) -> bytes | None:
    path = given or os.environ.get(f"HUBBUB_{name.upper()}")
    if not path:
        return None
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise InvalidArgument(f"{name}: {path} cannot be read: {error.strerror}", reason="TLS_FILE_INVALID") from None


def _client_file(file: Path) -> dict[str, str]:
    try:
        content: object = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {key: value for key, value in cast("dict[str, Any]", content).items() if isinstance(value, str)}
