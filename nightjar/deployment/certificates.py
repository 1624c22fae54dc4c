"""Makes the certificates of one installation: an authority of its own, and a certificate for each part.

A part's certificate and key are in one PEM file, the form that every client here reads (`ssl.keystore.type = PEM`).
The authority's key never leaves the machine that makes the certificates.
"""

import datetime as dt
import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Clients reject a server's certificate that is valid for longer; an authority outlives the certificates it signs.
DAYS = 825
AUTHORITY_DAYS = 3650
# A host whose clock is a little behind takes a new certificate too.
_CLOCK_SKEW = dt.timedelta(minutes=5)


@dataclass(frozen=True)
class Authority:
    """A certificate authority: its certificate, and the key that signs others."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def new(cls, name: str = "nightjar") -> "Authority":
        """A new one, which trusts nobody else."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        builder = _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @property
    def pem(self) -> bytes:
        """Its certificate, for everybody's trust store."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def certificate_for(self, name: str, hosts: Iterable[str] = ()) -> tuple[bytes, bytes]:
        """The key (PKCS 8) and the certificate of one part, as PEM.

        name: its common name, by which Kafka knows a client. hosts: host names and addresses that clients connect to;
        none: the part is a client only.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(self.certificate.subject, _name(name), key.public_key(), DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if alternatives := [_alternative(host) for host in hosts]:
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        signed = builder.sign(self.key, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return private, signed.public_bytes(serialization.Encoding.PEM)


def java_key_store(key: bytes, certificate: bytes, password: str) -> bytes:
    """A key and its certificate (PEM) in the form for servers in Java that read no PEM (PKCS 12)."""
    private = cast("ec.EllipticCurvePrivateKey", serialization.load_pem_private_key(key, None))
    encryption = serialization.BestAvailableEncryption(password.encode())
    return pkcs12.serialize_key_and_certificates(
        b"tls", private, x509.load_pem_x509_certificate(certificate), None, encryption
    )


def java_trust_store(authority: Authority) -> bytes:
    """The authority's certificate in the form for clients in Java (PKCS 12, without a password)."""
    trusted = pkcs12.PKCS12Certificate(authority.certificate, b"nightjar")
    return pkcs12.serialize_java_truststore([trusted], serialization.NoEncryption())


def write_secret(path: Path, content: bytes, mode: int = 0o400) -> None:
    """Write a new file that nobody else can read, at any moment.

    Raises:
        FileExistsError: there is one.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)


def _builder(
    issuer: x509.Name, subject: x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
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
