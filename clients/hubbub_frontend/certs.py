"""Certificates for development: a private authority, and what it signs.

A person who has `ca-key.pem` can pose as the hub and as each of its callers. In production, use the authority that your
other services use.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hubbub_frontend.private_files import write_private

AUTHORITY_DAYS = 3650
DAYS = 365
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")

# Names of clients are part of file names, and typed by people.
_CLIENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_MEMBER = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Files of a certificate and its key."""

    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority and its directory."""

    directory: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def open(cls, directory: Path) -> "Authority":
        """Open the authority of a directory, or create it; existing files stay unchanged.

        Raises OSError, and ValueError if only one of its two files exists.
        """
        files = _certificate_files(directory, "ca")
        if files.cert.exists() or files.key.exists():
            key = load_pem_private_key(files.key.read_bytes(), None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise ValueError(f"{files.key} is not a key of `hubbub certs dev`")
            return cls(directory, x509.load_pem_x509_certificate(files.cert.read_bytes()), key)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject("Hubbub development authority")
        certificate = (
            _start_builder(subject, key, AUTHORITY_DAYS)
            .issuer_name(subject)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, SHA256())
        )
        _write_files(files, certificate, key)
        return cls(directory, certificate, key)

    @property
    def file(self) -> Path:
        """Return the path of the authority's certificate, which the other side must trust."""
        return _certificate_files(self.directory, "ca").cert

    def issue_server(self, hosts: Iterable[str] = (), *, days: int = DAYS) -> CertificateFiles:
        """Issue a certificate for a hub on this machine and under `hosts`, names or addresses.

        Raises OSError, and ValueError for an invalid host.
        """
        names = [_host_name(each) for each in dict.fromkeys((*LOCAL_HOSTS, *hosts))]
        return self._issue_certificate("server", "Hubbub", [ExtendedKeyUsageOID.SERVER_AUTH], names, days)

    def issue_client(self, name: str, *, days: int = DAYS) -> CertificateFiles:
        """Issue a certificate for a caller, whom the hub knows as `cert:NAME`. Raises OSError, ValueError."""
        if not _CLIENT.fullmatch(name):
            raise ValueError(f"{name!r} is no name for a client: letters, digits and ._@- only, at most 64")
        return self._issue_certificate(f"client-{name}", name, [ExtendedKeyUsageOID.CLIENT_AUTH], [], days)

    def issue_member(self, name: str, *, days: int = DAYS) -> CertificateFiles:
        """Issue a certificate for a member of a fleet. Raises OSError, ValueError."""
        if not _MEMBER.fullmatch(name):
            raise ValueError(f"{name!r} is no name for a member: small letters, digits and .- only, at most 63")
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(f"hubbub:member:{name}"), x509.DNSName(name)]
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue_certificate(f"member-{name}", name, both, names, days)

    def _issue_certificate(
        self,
        file_stem: str,
        common_name: str,
        purposes: list[x509.ObjectIdentifier],
        alternative_names: list[x509.GeneralName],
        days: int,
    ) -> CertificateFiles:
        """Sign a certificate of a new key, and write both below `file_stem`. Raises OSError."""
        key = ec.generate_private_key(ec.SECP256R1())
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = (
            _start_builder(_subject(common_name), key, days)
            .issuer_name(self.certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(signer, critical=False)
        )
        if alternative_names:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternative_names), critical=False)
        files = _certificate_files(self.directory, file_stem)
        _write_files(files, builder.sign(self.key, SHA256()), key)
        return files


def certificate_hosts(cert: Path) -> frozenset[str]:
    """Return the hosts of a certificate, names in lower case. Raises ValueError if the file names no hosts."""
    try:
        certificate = x509.load_pem_x509_certificate(cert.read_bytes())
        hosts = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except OSError as error:
        raise ValueError(f"{cert} cannot be read: {error.strerror}") from None
    except (ValueError, x509.ExtensionNotFound):
        raise ValueError(f"{cert} is no certificate for a host") from None
    names = [name.lower() for name in hosts.get_values_for_type(x509.DNSName)]
    addresses = [str(address) for address in hosts.get_values_for_type(x509.IPAddress)]
    return frozenset((*names, *addresses))


def _start_builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    """Return a builder without an issuer. Negative `days` make a certificate that has expired."""
    # Valid from an hour ago, for clocks that are slow. An expired certificate is valid for the day before its end.
    not_after = datetime.now(UTC) + timedelta(days=days)
    not_before = min(datetime.now(UTC) - timedelta(hours=1), not_after - timedelta(days=1))
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
    )


def _subject(common_name: str) -> x509.Name:
    """Return the subject of a certificate with this common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return what a certificate's key may be used for: to sign certificates, or for TLS."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host_name(text: str) -> x509.GeneralName:
    """Return a host as a name in a certificate: an address or a DNS name. Raises ValueError."""
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        pass
    try:
        return x509.DNSName(text.encode("idna").decode())
    except UnicodeError:
        raise ValueError(f"{text!r} is no host") from None


def _certificate_files(directory: Path, name: str) -> CertificateFiles:
    """Return the paths of a certificate and its key."""
    return CertificateFiles(directory / f"{name}.pem", directory / f"{name}-key.pem")


def _write_files(files: CertificateFiles, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a certificate and its key; only the owner can read the key. Raises OSError."""
    write_private(files.key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    write_private(files.cert, certificate.public_bytes(Encoding.PEM), mode=0o644)
