"""Client certificates: who one names (RFC 5280, RFC 6125)."""

from cryptography import x509
from cryptography.x509.oid import NameOID

from hubbubd.errors import Unauthenticated


def parse_certificate(certificate: bytes) -> x509.Certificate:
    """Return a certificate, parsed from PEM or DER. Raises ValueError."""
    if certificate.startswith(b"-----BEGIN"):
        return x509.load_pem_x509_certificate(certificate)
    return x509.load_der_x509_certificate(certificate)


def find_name(certificate: x509.Certificate) -> str:
    """Return the name of a certificate's holder: its first URI, else mail address, else host, else the common name.

    The common name only counts without subject alternative names (RFC 6125). Raises Unauthenticated without a name.
    """
    try:
        alternative_names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        common_names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        names = [str(each.value) for each in common_names]
    else:
        kinds = (x509.UniformResourceIdentifier, x509.RFC822Name, x509.DNSName)
        names = [name for kind in kinds for name in alternative_names.get_values_for_type(kind)]
    if not names or not names[0]:
        raise Unauthenticated(
            "the certificate names nobody: it needs a URI, a mail address, a host or a common name",
            reason="NAME_INVALID",
        )
    return names[0]
