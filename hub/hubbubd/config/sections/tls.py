"""The TLS files: the hub's certificate and key, and the authorities of client certificates."""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from hubbubd.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The contents of the TLS files, as PEM, with the certificate's validity."""

    chain: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None
    not_before: datetime
    not_after: datetime

    def find_problem(self, now: datetime) -> str | None:
        """Return why clients would reject the certificate at the time `now`; None if it is valid then."""
        if now < self.not_before:
            return f"the certificate is valid only from {self.not_before:%Y-%m-%d %H:%M} UTC"
        return f"the certificate expired on {self.not_after:%Y-%m-%d %H:%M} UTC" if now > self.not_after else None


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of the TLS files."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def __iter__(self) -> Iterator[Path]:
        """Yield the paths of the files that are configured."""
        yield self.cert
        yield self.key
        if self.client_ca is not None:
            yield self.client_ca

    def read(self) -> ServerTls:
        """Read and validate the files. Raises ConfigError, whose key is the setting, and whose text names the file."""
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

        chain, key = _read_file("tls_cert", self.cert), _read_file("tls_key", self.key)
        try:
            certificate = x509.load_pem_x509_certificates(chain)[0]
        except ValueError:
            raise ConfigError("tls_cert", f"{self.cert} is not a PEM certificate") from None
        try:
            private_key = load_pem_private_key(key, None)
        except TypeError:
            raise ConfigError("tls_key", f"{self.key} is encrypted, and the hub cannot ask for a passphrase") from None
        except ValueError:
            raise ConfigError("tls_key", f"{self.key} is not a PEM private key") from None
        encoding = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        if private_key.public_key().public_bytes(*encoding) != certificate.public_key().public_bytes(*encoding):
            raise ConfigError("tls_key", f"{self.key} is not the key of the certificate {self.cert}")
        authorities = None if self.client_ca is None else _read_authorities(self.client_ca)
        return ServerTls(chain, key, authorities, certificate.not_valid_before_utc, certificate.not_valid_after_utc)

    def find_problem(self) -> str | None:
        """Return why clients would reject the certificate now, with its file; None if valid. Raises ConfigError."""
        problem = self.read().find_problem(datetime.now(UTC))
        return f"{self.cert}: {problem}" if problem else None


def read_certificate_names(chain: bytes) -> tuple[list[str], list[str]]:
    """Return the URIs and the DNS names of the first certificate in a PEM chain."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificates(chain)[0]
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return [], []
    return names.get_values_for_type(x509.UniformResourceIdentifier), names.get_values_for_type(x509.DNSName)


def _read_authorities(path: Path) -> bytes:
    """Return the content of a PEM file of authorities, validated. Raises ConfigError."""
    pem = _read_file("tls_client_ca", path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=pem.decode("ascii"))
    except (ValueError, ssl.SSLError):
        raise ConfigError("tls_client_ca", f"{path} has no PEM certificates of authorities") from None
    return pem


def _read_file(setting: str, path: Path) -> bytes:
    """Return the content of the file that a setting names. Raises ConfigError with the setting as its key."""
    try:
        return path.read_bytes()
    except OSError as exc:
        raise ConfigError(setting, f"{path} cannot be read: {exc.strerror}") from None
