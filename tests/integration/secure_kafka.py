"""A Kafka with TLS, SCRAM logins and an authorizer, in which nobody may do anything unless told."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import admin as _admin

from ops.broker.embedded import EmbeddedKafka
from ops.broker.properties import Login
from schemas.kafka.connection import KafkaSettings, settings_from_table
from tests.certificates import Certificates, make_certificates
from tests.conftest import KEEP

api: Final[Any] = _admin
AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The listener without login, which only this machine reaches: who makes topics and ACLs.
    "super.users": "User:ANONYMOUS",
}
CLUSTER: Final = "secure"
PASSWORD: Final = "password-of-"  # noqa: S105 - made up, for one test


@dataclass(slots=True)
class SecureKafka:
    """The broker, and logins made on it."""

    broker: EmbeddedKafka
    certificates: Certificates
    folder: Path
    _made: set[str] = field(default_factory=set)

    @property
    def super_user(self) -> KafkaSettings:
        """Settings of who may everything."""
        return KafkaSettings(bootstrap=self.broker.bootstrap, cluster=CLUSTER)

    def table(self, user: str, **changes: str) -> dict[str, str]:
        """Return the `[kafka]` table of a user, who is made; `__` stands for a dot."""
        if user not in self._made:
            self._make(user)
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificates.ca),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORD + user,
            "cluster": CLUSTER,
            **{k.replace("__", "."): v for k, v in changes.items()},
        }

    def settings(self, user: str, **changes: str) -> KafkaSettings:
        """Return the settings of a user."""
        return settings_from_table(self.broker.login_bootstrap, self.table(user, **changes))

    def config(self, user: str, tables: str = "", **changes: str) -> Path:
        """Return a config file of a user, with more tables."""
        path = self.folder / f"{user}.toml"
        lines = [f'"{key}" = "{value}"' for key, value in self.table(user, **changes).items()]
        path.write_text(
            "\n".join(
                [
                    "[kafka]",
                    f'"bootstrap.servers" = "{self.broker.login_bootstrap}"',
                    *lines,
                    tables,
                ]
            ),
            encoding="utf-8",
        )
        return path

    def _make(self, user: str) -> None:
        client = api.AdminClient(self.super_user.librdkafka())
        info = api.ScramCredentialInfo(api.ScramMechanism.SCRAM_SHA_512, 4096)
        login = api.UserScramCredentialUpsertion(user, info, (PASSWORD + user).encode())
        for future in client.alter_user_scram_credentials([login]).values():
            future.result()
        self._made.add(user)


@contextmanager
def secure_kafka(folder: Path) -> Iterator[SecureKafka]:
    """Run such a broker."""
    certificates = make_certificates(folder)
    login = Login(user="nobody", password=PASSWORD, server_pem=certificates.server_pem)
    settings = {**KEEP, **AUTHORIZER}
    with EmbeddedKafka(announce=False, login=login, settings=settings) as broker:
        yield SecureKafka(broker, certificates, folder)
