"""TLS of the API: new connections get changed certificate files without a restart."""

import os
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import grpc
import structlog

from hubbubd.config.sections.tls import ServerTls, TlsFiles
from hubbubd.errors import ConfigError

log = structlog.get_logger(__name__)

M = TypeVar("M")


def grpc_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Return credentials for a gRPC port (TLS 1.2 and 1.3), which follow the files. Raises ConfigError."""
    followed = _RereadFiles(
        files, lambda tls: grpc.ssl_server_certificate_configuration([(tls.key, tls.chain)], tls.client_ca)
    )
    known: Any = followed.current()

    def find_changed() -> Any:
        """Return a new configuration if the files have changed, else None; gRPC calls this at each handshake."""
        nonlocal known
        before, known = known, followed.current()
        return None if known is before else known

    return grpc.dynamic_ssl_server_credentials(known, find_changed, files.client_ca is not None)


def channel_credentials(files: TlsFiles) -> Callable[[], grpc.ChannelCredentials]:
    """Return a function that returns credentials for channels; new ones once the files have changed.

    Raises ConfigError for unusable files.
    """
    return _RereadFiles(files, lambda tls: grpc.ssl_channel_credentials(tls.client_ca, tls.key, tls.chain)).current


def ssl_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a context for a socket of the standard library, which follows the files. Raises ConfigError."""
    context_source = _RereadFiles(files, lambda tls: _make_context(files, tls))
    context = context_source.current()

    def use_current_context(connection: ssl.SSLObject | ssl.SSLSocket, _name: object, _context: object) -> None:
        """Give a new connection the context of the files as they are now."""
        connection.context = context_source.current()

    context.sni_callback = use_current_context  # also called for clients that send no SNI
    return context


def _make_context(files: TlsFiles, tls: ServerTls) -> ssl.SSLContext:
    """Return the context of a listener with these certificates. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A resumed session would skip the verification of the client's certificate. TLS 1.2 can also resume by session id,
    # which cannot be turned off here, hence TLS 1.3 below.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    if tls.client_ca is not None:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=tls.client_ca.decode("ascii"))
        context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(files.cert, files.key)
    except (OSError, ssl.SSLError) as exc:  # it reads the files again, and they may have changed
        raise ConfigError("tls_cert", f"{files.cert}: {exc}") from None
    return context


class _RereadFiles(Generic[M]):
    """An object that is made from TLS files, and made again when they change.

    Called at each handshake, by gRPC from threads of its own. Unusable files change nothing: a pair is not replaced
    atomically, so the new certificate may be there before its key.
    """

    def __init__(self, files: TlsFiles, make: Callable[[ServerTls], M]) -> None:
        self._files = files
        self._make = make
        self._lock = threading.Lock()
        self._stamps = self._read_stamps()
        self._current = self._make_from_files()

    def current(self) -> M:
        """Return the same object until the files change; files that cannot be used are logged, and change nothing."""
        with self._lock:
            if (stamps := self._read_stamps()) != self._stamps:
                self._stamps = stamps
                try:
                    self._current = self._make_from_files()
                    log.info("certificate changed", file=str(self._files.cert))
                except ConfigError as exc:
                    log.warning("certificate not changed", error=str(exc))
            return self._current

    def _make_from_files(self) -> M:
        """Read the files and return the object; log a certificate that is not valid now. Raises ConfigError."""
        tls = self._files.read()
        if problem := tls.find_problem(datetime.now(UTC)):
            log.warning("certificate not valid; clients will refuse it", file=str(self._files.cert), error=problem)
        return self._make(tls)

    def _read_stamps(self) -> list[tuple[int, int, int] | None]:
        return [_file_stamp(path) for path in self._files]


def _file_stamp(path: os.PathLike[str]) -> tuple[int, int, int] | None:
    """Return what changes with a file: inode, time and size; None if it is not there."""
    try:
        file_stat = os.stat(path)  # noqa: PTH116 - of what a link leads to, like reading
    except OSError:
        return None
    return file_stat.st_ino, file_stat.st_mtime_ns, file_stat.st_size
