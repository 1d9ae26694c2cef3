"""A certificate authority, a server and a client, made for one test."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

VALID_FOR: Final = datetime.timedelta(days=1)
CLIENT_KEY_PASSWORD: Final = "client-key-secret"  # noqa: S105 - made up, for one test


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Files: the authority's certificate, the server's bundle, the client's certificate and key."""

    ca: Path
    server_pem: Path
    client_certificate: Path
    client_key: Path


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _signed(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name("Test authority"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALID_FOR)
        .not_valid_after(now + VALID_FOR)
        .add_extension(extension, critical=True)
        .sign(issuer_key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey, password: str | None) -> bytes:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password.encode())
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )


def make_certificates(folder: Path) -> Certificates:
    """Write an authority and what it signed into the folder; the client's key has a password."""
    ca_key, server_key, client_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    ca = _signed("Test authority", ca_key, ca_key, x509.BasicConstraints(ca=True, path_length=0))
    loopback = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    server = _signed("broker", server_key, ca_key, loopback)
    plain = x509.BasicConstraints(ca=False, path_length=None)
    files = Certificates(
        ca=folder / "ca.pem",
        server_pem=folder / "server.pem",
        client_certificate=folder / "client.pem",
        client_key=folder / "client.key",
    )
    files.ca.write_bytes(ca)
    files.server_pem.write_bytes(_key_pem(server_key, None) + server + ca)
    files.client_certificate.write_bytes(_signed("agent", client_key, ca_key, plain))
    files.client_key.write_bytes(_key_pem(client_key, CLIENT_KEY_PASSWORD))
    return files
