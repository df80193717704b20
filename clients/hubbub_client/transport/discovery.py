"""Finds the hub: from arguments, the environment, or the `client.json` that a running hub writes.

A hub of several members has several addresses, separated by commas: any of them will do. `dns:///NAME:PORT` is one too,
whose addresses gRPC looks up and walks by itself.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from hubbub_client import numbers
from hubbub_shared.legible import is_clean, is_text
from hubbub_shared.platform import directories, files

if TYPE_CHECKING:
    from hubbub_client.errors import InvalidArgument, Unavailable

# Length of `sun_path` without its final NUL, unix(7).
MAX_UNIX_BYTES = 107
PORT_DIGITS = 5
UNIX, HTTP, HTTPS, DNS = "unix:", "http://", "https://", "dns:///"
MAX_ADDRESSES = 16


class HubLocation(NamedTuple):
    """Arguments to find the hub; the environment or `client.json` has the values of those that are None."""

    address: str | None = None
    token: str | None = None
    data_dir: str | Path | None = None
    ca: str | Path | None = None
    cert: str | Path | None = None
    key: str | Path | None = None


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Authorities to trust (None: the default ones of gRPC), and the client certificate and key; all as PEM."""

    ca: bytes | None = None
    cert: bytes | None = None
    key: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class HubAddress:
    """An `address` of a hub, with its `source` in words; `target` is HOST:PORT, unix:PATH or dns:///HOST:PORT."""

    address: str
    token: str | None = field(repr=False)
    source: str
    target: str
    tls: ClientTls | None
    is_from_client_file: bool = False
    """Whether `client.json` names the address and the token, which its hub keeps over restarts."""

    @property
    def key(self) -> object:
        """The identity of a channel to the address; without the token, which may change for the same channel."""
        return self.address, self.tls

    @property
    def is_local(self) -> bool:
        """Whether the address is on this machine."""
        return self.target.startswith(UNIX) or is_loopback(_host_of_target(self.target.removeprefix(DNS)))


def default_data_dir() -> Path:
    """Return the data directory of a hub of this user. Raises Unavailable if the user has no home directory."""
    try:
        return directories.default_data_dir(os.environ)
    except RuntimeError:
        raise _not_found_error(
            "no hub found: this user has no home directory; name the hub's address, or its data directory"
        ) from None


def discover(where: HubLocation) -> HubAddress:
    """Return the hub's address; of several the first to try. Raises Unavailable, InvalidArgument as `discover_all`."""
    return discover_all(where)[0]


def discover_all(where: HubLocation) -> Sequence[HubAddress]:
    """Return all addresses of the hub, in an order that differs between processes, so that the members share the load.

    Reads the disk each time, since a restarted hub may have moved. Raises Unavailable if no address is found. Raises
    InvalidArgument for a malformed address, for too many, for plaintext off this machine, for a token that cannot be
    sent, and for TLS files that cannot be read.
    """
    source = "as given" if where.address else "from HUBBUB_ADDRESS"
    address = where.address or os.environ.get("HUBBUB_ADDRESS")
    token = where.token or os.environ.get("HUBBUB_TOKEN")
    is_from_client_file = not (address or token)
    if not (address and token):
        file = client_file(where)
        _check_owner(file)
        client_config = read_client_file(file)
        if address:
            # Never send one hub's token to another.
            token = token or (
                client_config.get("token") if _are_same_address(client_config.get("address", ""), address) else None
            )
        elif "address" in client_config:
            address, token, source = client_config["address"], token or client_config.get("token"), f"from {file}"
        else:
            raise _not_found_error(
                f"no hub found: {file} is missing or not readable; start one with `hubbub up -d`, or name the hub's "
                "address and token",
                client_file=str(file),
            )
    targets = {each: _parse_target(each) for each in _split_addresses(address)}
    tls = _read_tls(where) if any(secure for _, secure in targets.values()) else None
    token = _clean_token(token)
    endpoints = [
        HubAddress(each, token, source, to, tls if secure else None, is_from_client_file)
        for each, (to, secure) in targets.items()
    ]
    return _shuffle(endpoints) if len(endpoints) > 1 else endpoints


def _split_addresses(address_list: str) -> list[str]:
    """Return the addresses in a list with commas. Raises InvalidArgument for an empty address, and for too many."""
    if "," not in address_list or address_list.startswith(
        UNIX
    ):  # the path of a socket may have a comma, so it stands alone
        return [address_list]
    addresses = [each.strip() for each in address_list.split(",")]
    if not all(addresses):
        raise _invalid_error(
            f"{address_list!a} has an empty address: separate addresses by one comma", reason="ADDRESS_INVALID"
        )
    if len(addresses) > MAX_ADDRESSES:
        raise _invalid_error(
            f"{len(addresses)} addresses are too many: a hub has at most {MAX_ADDRESSES}", reason="ADDRESS_INVALID"
        )
    return addresses


def _are_same_address(one: str, other: str) -> bool:
    """Return whether two texts name the same addresses, in whatever order."""
    return one == other or {*map(str.strip, one.split(","))} == {*map(str.strip, other.split(","))}


def _shuffle(endpoints: list[HubAddress]) -> list[HubAddress]:
    """Return endpoints in a random order that stays the same in this process."""
    from random import Random  # imported late: most programs know one address

    return Random(_process_seed()).sample(endpoints, len(endpoints))  # noqa: S311 - no secret


@cache
def _process_seed() -> bytes:
    """Return a random seed, the same one during the whole process, so that the addresses keep their order."""
    return os.urandom(8)


def client_file(where: HubLocation) -> Path:
    """Return the path of a running hub's `client.json`. Raises Unavailable if this user has no home directory."""
    return Path(where.data_dir or os.environ.get("HUBBUB_DATA_DIR") or default_data_dir()) / "client.json"


def mcp_url(where: HubLocation) -> str | None:
    """Return the URL at which the hub of this machine serves MCP hosts; None if it serves none, or has not started.

    Raises Unavailable for a `client.json` of another user.
    """
    file = client_file(where)
    _check_owner(file)
    return read_client_file(file).get("mcp")


def _clean_token(raw_token: str | None) -> str | None:
    """Return a token fit for a header, without the line end that files and `echo` add; None if there is none.

    Raises InvalidArgument.
    """
    token = (raw_token or "").strip()
    if not (token.isascii() and token.isprintable()):
        raise _invalid_error(
            "the token has characters that no token has: one that is not ASCII, or a line break within it; "
            "look at --token, HUBBUB_TOKEN or client.json",
            reason="TOKEN_INVALID",
        )
    return token or None


def _parse_target(address: str) -> tuple[str, bool]:
    """Return the target of an address, and whether it needs TLS: always off this machine, and with https://.

    Raises InvalidArgument for a malformed address, and for http:// off this machine.
    """
    if not is_text(address) or not is_clean(address):
        raise _invalid_error(f"{address!a} has characters that no address has", reason="ADDRESS_INVALID")
    if address.startswith(UNIX):
        if not address.removeprefix(UNIX):
            raise _invalid_error(f"{address!r} names no file", reason="ADDRESS_INVALID")
        if len(os.fsencode(address.removeprefix(UNIX))) > MAX_UNIX_BYTES:
            raise _invalid_error(
                f"the path of a socket has at most {MAX_UNIX_BYTES} bytes, this one has more", reason="ADDRESS_INVALID"
            )
        return address, False
    is_plaintext, is_dns = address.startswith(HTTP), address.startswith(DNS)
    target = address.removeprefix(DNS) if is_dns else address.removeprefix(HTTPS).removeprefix(HTTP).rstrip("/")
    host, colon, port = target.rpartition(":")
    if not colon or not host or "/" in target or not _is_port(port):
        raise _invalid_error(f"{address!r} is not HOST:PORT, https://HOST:PORT or unix:PATH", reason="ADDRESS_INVALID")
    is_local = is_loopback(_host_of_target(target))
    if is_plaintext and not is_local:
        raise _invalid_error(
            f"{address} is not on this machine: without TLS everybody on the way could read the token; use https://",
            reason="PLAINTEXT_REFUSED",
        )
    return f"{DNS}{target}" if is_dns else target, address.startswith(HTTPS) or not is_local


def _host_of_target(target: str) -> str:
    """Return the host of HOST:PORT, without the brackets of an IPv6 address."""
    return target.rpartition(":")[0].strip("[]")


def _is_port(text: str) -> bool:
    """Return whether a text is the number of a port, of at most PORT_DIGITS digits."""
    number = numbers.whole_text(text)
    return number is not None and number <= numbers.LAST_PORT and len(text) <= PORT_DIGITS


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is on this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _read_tls(where: HubLocation) -> ClientTls:
    """Return authorities, certificate and key: as configured, else from the files that the environment names.

    Raises InvalidArgument for a file that cannot be read.
    """
    cert = _read_pem("cert", where.cert)
    # One file may hold the certificate and the key.
    return ClientTls(_read_pem("ca", where.ca), cert, _read_pem("key", where.key) or cert)


def _read_pem(name: str, configured: str | Path | None) -> bytes | None:
    """Return the TLS file that is `configured`, or named by HUBBUB_`name`; None without one. Raises InvalidArgument."""
    path = configured or os.environ.get(f"HUBBUB_{name.upper()}")
    if not path:
        return None
    try:
        return Path(path).expanduser().read_bytes()
    except (OSError, RuntimeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise _invalid_error(f"{name}: {path} cannot be read: {why}", reason="TLS_FILE_INVALID") from None


def _check_owner(file: Path) -> None:
    """Raise Unavailable for a `client.json` of another user, who could put another hub in it to get all requests.

    A file of the superuser is accepted, as the superuser can change anything anyway.
    """
    try:
        status = file.stat()
    except (OSError, ValueError):  # no such file, so nothing is read from it
        return
    if status.st_uid != 0 and files.is_of_another_user(status):
        raise _not_found_error(
            f"{file} belongs to another user (uid {status.st_uid}), who could be in the hub's place: run this as that "
            "user, or give the address and the token yourself",
            client_file=str(file),
        )


def read_client_file(file: Path) -> dict[str, str]:
    """Return the texts in a `client.json`; empty for a file that is not there, or is no JSON object. Never raises."""
    try:
        # Reading a pipe in its place would block.
        content: object = json.loads(file.read_bytes()) if file.is_file() else None
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {key: value for key, value in cast("dict[str, Any]", content).items() if isinstance(value, str)}


# Errors are imported when there is one, since they import gRPC.


def _not_found_error(message: str, **metadata: str) -> "Unavailable":
    """Return the error for a hub that cannot be found."""
    from hubbub_client.errors import Unavailable

    return Unavailable(message, reason="HUB_UNREACHABLE", metadata=metadata)


def _invalid_error(message: str, *, reason: str) -> "InvalidArgument":
    """Return the error for an argument that cannot be used."""
    from hubbub_client.errors import InvalidArgument

    return InvalidArgument(message, reason=reason)
