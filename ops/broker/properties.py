"""The broker's settings; pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ops.broker.ports import LOOPBACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A user for a second listener: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 all take it.

    `server_pem` is a file with the server's key, its certificate and the chain
    above it: both listeners speak TLS. `client_ca` is a file with the authority of
    clients' certificates; with it a third listener asks for one instead of a password.
    """

    user: str
    password: str = field(repr=False)
    server_pem: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Ports on the loopback address; None where there is no such listener."""

    plain: int
    controller: int
    login: int | None = None
    certificate: int | None = None


# The common name of a certificate is the principal: `User:worker`, as by password. It must stand
# first in the subject and be plain, since a comma or a plus would begin another part of it. Any
# other subject is the principal as a whole, which is Kafka's default.
CN_IS_PRINCIPAL: Final = "RULE:^CN=([A-Za-z0-9._-]+)(,.*)?$/$1/,DEFAULT"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def server_properties(
    listeners: Listeners,
    log_dir: Path,
    *,
    login: Login | None = None,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the settings of a broker that is its own controller, on loopback only."""
    public = {"PLAINTEXT": listeners.plain}
    if listeners.login is not None:
        public["LOGIN"] = listeners.login
    if listeners.certificate is not None:
        public["CERTIFICATE"] = listeners.certificate
    advertised = ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in public.items())
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{LOOPBACK}:{listeners.controller}",
        "listeners": f"{advertised},CONTROLLER://{LOOPBACK}:{listeners.controller}",
        "advertised.listeners": advertised,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(log_dir),
        # One broker: nothing can be replicated.
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # The defaults of 50 make the first consumer group wait for 50 logs.
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # group.min.session.timeout.ms stays at Kafka's 6 s on purpose: a client that
        # asks for less hangs on every other cluster, and should be found out here.
        "auto.create.topics.enable": "false",
        # After a crash the controller keeps the dead broker's registration for this long
        # (9 s by default), and its successor out.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # 128 MB of a heap of 512 MB by default.
        "log.cleaner.dedupe.buffer.size": str(8 * 2**20),
        # Files of 10 MB for each partition by default.
        "log.index.size.max.bytes": str(2**20),
        "num.network.threads": "2",
        "num.io.threads": "4",
        **(extra or {}),
    }
    if listeners.login is not None and login is not None:
        settings |= _login(login)
    return settings


def _login(login: Login) -> dict[str, str]:
    package = "org.apache.kafka.common.security"
    plain = (
        f'{package}.plain.PlainLoginModule required username="{login.user}" '
        f'password="{login.password}" user_{login.user}="{login.password}";'
    )
    scram = f"{package}.scram.ScramLoginModule required;"
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", "LOGIN": "SASL_SSL"}
    server = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(login.server_pem)}
    by_listener = {
        "login": {
            **server,
            "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM)),
            "plain.sasl.jaas.config": plain,
            **{f"{m.lower()}.sasl.jaas.config": scram for m in SCRAM},
        }
    }
    if login.client_ca is not None:
        protocols["CERTIFICATE"] = "SSL"
        by_listener["certificate"] = {
            **server,
            "ssl.client.auth": "required",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(login.client_ca),
            "ssl.principal.mapping.rules": CN_IS_PRINCIPAL,
        }
    return {
        "listener.security.protocol.map": ",".join(f"{k}:{v}" for k, v in protocols.items()),
        **{
            f"listener.name.{listener}.{key}": value
            for listener, own in by_listener.items()
            for key, value in own.items()
        },
    }


def as_text(settings: Mapping[str, str]) -> str:
    """Return the settings as the text of a Java properties file."""
    return "".join(f"{k}={_escaped(v)}\n" for k, v in settings.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")
