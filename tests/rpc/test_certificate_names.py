"""Whom a client certificate names: its URI, else mail address, else host, else its common name (RFC 6125)."""

from datetime import UTC, datetime
from functools import cache
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from hubbubd.errors import Unauthenticated
from hubbubd.rpc.auth.certificates import find_name, parse_certificate

from ..raising import raising

URI = x509.UniformResourceIdentifier("spiffe://example.org/worker")
MAIL = x509.RFC822Name("alice@example.org")
HOST = x509.DNSName("worker.example.org")
ADDRESS = x509.IPAddress(ip_address("192.0.2.1"))


@cache
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def certificate(common: str | None, *others: x509.GeneralName) -> x509.Certificate:
    """A certificate that its own key has signed."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)] if common else [])
    made = (
        x509.CertificateBuilder(subject, subject, key().public_key())
        .serial_number(1)
        .not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2027, 1, 1, tzinfo=UTC))
    )
    if others:
        made = made.add_extension(x509.SubjectAlternativeName(others), critical=False)
    return made.sign(key(), hashes.SHA256())


@pytest.mark.parametrize(
    ("common", "others", "name"),
    [
        ("carol", (HOST, MAIL, URI), URI.value),
        ("carol", (HOST, MAIL), MAIL.value),
        ("carol", (ADDRESS, HOST), HOST.value),
        ("carol", (), "carol"),
    ],
)
def test_a_certificate_names_its_first_uri_else_mail_address_else_host_else_common_name(
    common: str, others: tuple[x509.GeneralName, ...], name: str
) -> None:
    assert find_name(certificate(common, *others)) == name


@pytest.mark.parametrize(("common", "others"), [("carol", (ADDRESS,)), (None, ())])
def test_the_common_name_of_a_certificate_with_other_names_names_nobody(
    common: str | None, others: tuple[x509.GeneralName, ...]
) -> None:
    with raising(Unauthenticated, "NAME_INVALID"):
        find_name(certificate(common, *others))


@pytest.mark.parametrize("form", [Encoding.PEM, Encoding.DER])
def test_a_certificate_is_read_as_pem_and_as_der(form: Encoding) -> None:
    assert find_name(parse_certificate(certificate("carol").public_bytes(form))) == "carol"
