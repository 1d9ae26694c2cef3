"""A Kafka with TLS and an authorizer, in which nobody may do anything unless told.

Clients log in by SCRAM or by a certificate; the same user is the same principal.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import admin as _admin

from ops.broker.embedded import EmbeddedKafka
from ops.broker.properties import Login
from schemas.kafka.connection import KafkaSettings, settings_from_table
from tests.certificates import CLIENT_KEY_PASSWORD, Certificates, make_certificates
from tests.conftest import KEEP

api: Final[Any] = _admin
AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The listener without login, which only this machine reaches: who makes topics and ACLs.
    "super.users": "User:ANONYMOUS",
}
CLUSTER: Final = "secure"
PASSWORD: Final = "password-of-"  # noqa: S105 - made up, for one test
# Made with the broker, for all mechanisms; it has no ACLs.
FIRST_USER: Final = "nobody"
SCRAM: Final = "SCRAM-SHA-512"
CERTIFICATE: Final = "certificate"


@dataclass(slots=True)
class SecureKafka:
    """The broker, and logins made on it."""

    broker: EmbeddedKafka
    certificates: Certificates
    folder: Path
    _made: set[str] = field(default_factory=lambda: {FIRST_USER})

    @property
    def super_user(self) -> KafkaSettings:
        """Settings of who may everything."""
        return KafkaSettings(bootstrap=self.broker.bootstrap, cluster=CLUSTER)

    def bootstrap(self, login: str) -> str:
        """Return the address at which that kind of login is asked for."""
        by_certificate = login == CERTIFICATE
        return self.broker.certificate_bootstrap if by_certificate else self.broker.login_bootstrap

    def table(self, user: str, login: str = SCRAM, **changes: str) -> dict[str, str]:
        """Return the `[kafka]` table of a user, who is made.

        In names of changes `__` stands for a dot; a change to nothing leaves the setting out.
        """
        given = self._by_certificate(user) if login == CERTIFICATE else self._by_password(user)
        table = {"ssl.ca.location": str(self.certificates.ca), "cluster": CLUSTER, **given}
        table |= {k.replace("__", "."): v for k, v in changes.items()}
        return {k: v for k, v in table.items() if v}

    def settings(self, user: str, login: str = SCRAM, **changes: str) -> KafkaSettings:
        """Return the settings of a user."""
        return settings_from_table(self.bootstrap(login), self.table(user, login, **changes))

    def config(self, user: str, login: str = SCRAM, tables: str = "", **changes: str) -> Path:
        """Return a config file of a user, with more tables."""
        path = self.folder / f"{user}-{login}.toml"
        table = {"bootstrap.servers": self.bootstrap(login), **self.table(user, login, **changes)}
        lines = [f'"{key}" = "{value}"' for key, value in table.items()]
        _replace(path, "\n".join(["[kafka]", *lines, tables]))
        return path

    def _by_password(self, user: str) -> dict[str, str]:
        if user not in self._made:
            self._make(user)
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": SCRAM,
            "sasl.username": user,
            "sasl.password": PASSWORD + user,
        }

    def _by_certificate(self, user: str) -> dict[str, str]:
        certificate, key = self.certificates.client(self.folder, f"CN={user},O=Example")
        password = self.folder / "key-password"
        _replace(password, CLIENT_KEY_PASSWORD)
        return {
            "security.protocol": "SSL",
            "ssl.certificate.location": str(certificate),
            "ssl.key.location": str(key),
            "ssl.key.password.file": str(password),
        }

    def _make(self, user: str) -> None:
        client = api.AdminClient(self.super_user.librdkafka())
        info = api.ScramCredentialInfo(api.ScramMechanism.SCRAM_SHA_512, 4096)
        login = api.UserScramCredentialUpsertion(user, info, (PASSWORD + user).encode())
        for future in client.alter_user_scram_credentials([login]).values():
            future.result()
        self._made.add(user)


def _replace(path: Path, text: str) -> None:
    """Write a file whole: a process started with the one before may be about to read it."""
    whole = path.with_name(f"{path.name}.new")
    whole.write_text(text, encoding="utf-8")
    whole.replace(path)


@contextmanager
def secure_kafka(folder: Path) -> Iterator[SecureKafka]:
    """Run such a broker."""
    certificates = make_certificates(folder)
    login = Login(
        user=FIRST_USER,
        password=PASSWORD + FIRST_USER,
        server_pem=certificates.server_pem,
        client_ca=certificates.ca,
    )
    settings = {**KEEP, **AUTHORIZER}
    with EmbeddedKafka(announce=False, login=login, settings=settings) as broker:
        yield SecureKafka(broker, certificates, folder)
