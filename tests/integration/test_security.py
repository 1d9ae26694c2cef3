"""One `[kafka]` table logs a client in, over TLS and without."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from ops.broker.embedded import EmbeddedKafka
from ops.broker.properties import Login
from schemas.kafka.connection import KafkaSettings, settings_from_table
from tests.certificates import Certificates, make_certificates

pytestmark = pytest.mark.broker
USER, PASSWORD = "worker-1", "quite-secret"
TOPIC: Final = "login.test"
TIMEOUT_S: Final = 60.0
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Return an authority of this module's own."""
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tls_broker(certificates: Certificates) -> Iterator[EmbeddedKafka]:
    """Run a broker whose second listener wants TLS and a login."""
    login = Login(user=USER, password=PASSWORD, server_pem=certificates.server_pem)
    with EmbeddedKafka(announce=False, login=login) as broker:
        yield broker


def table(ca: Path, **changes: str) -> dict[str, Any]:
    """Return a `[kafka]` table for that listener, with changes (`__` stands for a dot)."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(ca),
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        **{k.replace("__", "."): v for k, v in changes.items()},
    }


def topics_by_librdkafka(settings: KafkaSettings, timeout_s: float = TIMEOUT_S) -> set[str]:
    """Return the topics that confluent-kafka sees; raises KafkaException where it may not."""
    admin = AdminClient({**settings.librdkafka(), "log_level": 0})
    return set(admin.list_topics(timeout=timeout_s).topics)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_table_logs_in(
    tls_broker: EmbeddedKafka, certificates: Certificates, mechanism: str
) -> None:
    """TLS trust, user, password and mechanism of the table reach the client."""
    settings = settings_from_table(
        tls_broker.login_bootstrap, table(certificates.ca, sasl__mechanism=mechanism)
    )
    topics_by_librdkafka(settings)


@pytest.mark.parametrize(
    "change",
    [
        {"sasl__password": "wrong"},
        {"ssl__ca__location": ""},  # the system's authorities did not sign the broker
        {"security__protocol": "SASL_PLAINTEXT"},
    ],
    ids=["wrong password", "unknown authority", "no TLS"],
)
def test_a_wrong_table_does_not_get_in(
    tls_broker: EmbeddedKafka, certificates: Certificates, change: dict[str, str]
) -> None:
    """A wrong password, an authority that is not trusted, and plain text are refused."""
    wrong = {k: v for k, v in table(certificates.ca, **change).items() if v}
    settings = settings_from_table(tls_broker.login_bootstrap, wrong)
    with pytest.raises(confluent_kafka.KafkaException):
        # It goes on trying for all of its time.
        topics_by_librdkafka(settings, timeout_s=3)


def test_login_without_tls() -> None:
    """The same table without TLS settings logs in at a SASL_PLAINTEXT listener."""
    login = Login(user=USER, password=PASSWORD)
    with EmbeddedKafka(announce=False, login=login) as broker:
        settings = settings_from_table(
            broker.login_bootstrap,
            {
                "security.protocol": "sasl_plaintext",
                "sasl.mechanisms": "SCRAM-SHA-256",
                "sasl.username": USER,
                "sasl.password": PASSWORD,
            },
        )
        topics_by_librdkafka(settings)
