"""A certificate authority, a server and clients, made for one test."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

VALID_FOR: Final = datetime.timedelta(days=1)
CLIENT_KEY_PASSWORD: Final = "client-key-secret"  # noqa: S105 - made up, for one test
AUTHORITY: Final = x509.Name.from_rfc4514_string("CN=Test authority")


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """An authority, and files: its certificate and the server's bundle."""

    ca: Path
    server_pem: Path
    _ca_key: ec.EllipticCurvePrivateKey

    def client(self, folder: Path, subject: str) -> tuple[Path, Path]:
        """Write a client's certificate and its key, which has a password; return both files.

        `subject` is as RFC 4514 writes it, such as `CN=worker,O=Example`.
        """
        name = x509.Name.from_rfc4514_string(subject)
        key = ec.generate_private_key(ec.SECP256R1())
        plain = x509.BasicConstraints(ca=False, path_length=None)
        number = x509.random_serial_number()
        files = folder / f"{number}.pem", folder / f"{number}.key"
        files[0].write_bytes(_signed(name, key, self._ca_key, plain))
        files[1].write_bytes(_key_pem(key, CLIENT_KEY_PASSWORD))
        return files


def _signed(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(AUTHORITY)
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
    """Write an authority and the server that it vouches for into the folder."""
    ca_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = _signed(AUTHORITY, ca_key, ca_key, x509.BasicConstraints(ca=True, path_length=0))
    loopback = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    server = _signed(x509.Name.from_rfc4514_string("CN=broker"), server_key, ca_key, loopback)
    made = Certificates(ca=folder / "ca.pem", server_pem=folder / "server.pem", _ca_key=ca_key)
    made.ca.write_bytes(ca)
    made.server_pem.write_bytes(_key_pem(server_key, None) + server + ca)
    return made
