"""The certificate of a throw-away API server."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_NAMES: Final = ("kubernetes.default.svc", "kubernetes.default", "kubernetes", "localhost")
_VALID: Final = timedelta(days=365)


def write_server_certificate(file: Path, addresses: Sequence[str]) -> None:
    """A certificate of a server with that of its authority, and its key beside it in ``.key``.

    As kube-apiserver makes them itself, but with elliptic curves: with RSA it uses 0.1 s of CPU
    time to find the keys, and 0.6 ms to sign in each handshake, of which tests have thousands.
    """
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_id = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    subjects = [x509.IPAddress(ip_address(one)) for one in dict.fromkeys(addresses)]
    alternatives = x509.SubjectAlternativeName([*map(x509.DNSName, _NAMES), *subjects])
    authority = (
        _certificate("throw-away-ca", authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(authority_id, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _certificate("throw-away", key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id),
            critical=False,
        )
        .add_extension(alternatives, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    chain = [one.public_bytes(Encoding.PEM) for one in (certificate, authority)]
    file.write_bytes(b"".join(chain))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    file.with_suffix(".key").write_bytes(secret)


def _certificate(name: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name("throw-away-ca"))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _VALID)
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
