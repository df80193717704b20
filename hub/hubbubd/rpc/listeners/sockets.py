"""Sockets of the API: a TCP port, beyond loopback only with TLS, or a Unix socket with mode 0600."""

import ipaddress
import os
import socket
import stat
from pathlib import Path

import grpc

from hubbubd import bounds
from hubbubd.config.sections.network import LAST_PORT, UNIX, is_local, make_off_loopback_message
from hubbubd.errors import ConfigError

_ADVICE = "end what listens there, or choose another address"


def bind(server: grpc.aio.Server, listen: str, credentials: grpc.ServerCredentials | None = None) -> str:
    """Bind HOST:PORT (0 picks a free port) or unix:PATH, which needs no TLS; return the address to connect to.

    Raises ConfigError for an address beyond loopback without TLS, and OSError with a reason for one that cannot be
    bound.
    """
    if listen.startswith(UNIX):
        return _bind_unix(server, Path(listen.removeprefix(UNIX)))
    name, port, shown, family = _parse_address(listen, secure=credentials is not None)
    with socket.socket(family, socket.SOCK_STREAM) as trial:  # tells why a port cannot be bound, which gRPC does not
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((name, port))
        except OSError as exc:
            raise OSError(f"cannot listen on {shown}:{port}: {exc.strerror}; {_ADVICE}") from None
    return f"{shown}:{_add_port(server, f'{shown}:{port}', credentials)}"


def open_listener(listen: str, *, secure: bool = False) -> tuple[socket.socket, str]:
    """Return a listening socket on HOST:PORT (0 picks a free port), and the address to connect to.

    Raises ConfigError for an address beyond loopback unless it is `secure`, OSError for one that cannot be bound.
    """
    name, port, shown, family = _parse_address(listen, secure=secure)
    try:
        listener = socket.create_server((name, port), family=family)
    except OSError as exc:
        raise OSError(f"cannot listen on {shown}:{port}: {exc.strerror}; {_ADVICE}") from None
    # Connections inherit it: else a body waits 40 ms, until its headers are acknowledged.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener, f"{shown}:{listener.getsockname()[1]}"


def _parse_address(listen: str, *, secure: bool) -> tuple[str, int, str, socket.AddressFamily]:
    """Return address, port, the address as URLs have it, and the family. Raises ConfigError."""
    if not secure and not is_local(listen):
        raise ConfigError("listen", make_off_loopback_message(listen))
    host, _, port = listen.rpartition(":")
    # localhost may be two addresses, and a port that is free on one need not be free on the other.
    name = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        raise ConfigError("listen", f"{host} is not an address") from None
    number = bounds.parse_whole(port, high=LAST_PORT) or 0
    if address.version == 6:
        return name, number, f"[{name}]", socket.AF_INET6
    return name, number, name, socket.AF_INET


def _bind_unix(server: grpc.aio.Server, path: Path) -> str:
    """Bind a Unix socket with mode 0600, in place of a stale one, and return its address. Raises OSError."""
    if not path.absolute().parent.is_dir():
        raise OSError(f"cannot listen on {path}: there is no directory {path.absolute().parent}; make it")
    _remove_stale_socket(path)
    before = os.umask(0o177)
    try:
        _add_port(server, f"{UNIX}{path}")
    finally:
        os.umask(before)
    return f"{UNIX}{path}"


def _add_port(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
    """Have the server listen at an address, and return the port. Raises OSError."""
    try:
        if credentials is not None:
            return server.add_secure_port(address, credentials)
        return server.add_insecure_port(address)
    except RuntimeError as exc:
        raise OSError(f"cannot listen on {address}: {exc}") from None


def _remove_stale_socket(path: Path) -> None:
    """Remove a Unix socket on which no process listens. Raises OSError when anything else is there."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(f"cannot listen on {path}: there is a file that is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        trial.settimeout(1)
        try:
            trial.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError as exc:
            raise OSError(f"cannot listen on {path}: {exc.strerror or exc}") from None
        else:
            raise OSError(f"cannot listen on {path}: another process does; {_ADVICE}")
