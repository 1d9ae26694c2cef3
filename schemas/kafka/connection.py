"""How a process reaches the topics: one `[kafka]` table for all clients.

Keys of the table are librdkafka's own, passed through as they are, beside a few
of ours. No Kafka client is imported here.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from schemas.process.files import parse_json, read_file
from schemas.process.settings import ConfigError, read_table

BOOTSTRAP_ENV: Final = "KAFKA_BOOTSTRAP"
STATE_ENV: Final = "SKELETONHUNTER_STATE_DIR"
BROKER_FILE: Final = "broker.json"

OWN_KEYS: Final = frozenset(
    {
        "topic.prefix",
        "cluster",
        "schema.registry.url",
        "schema.registry.user",
        "schema.registry.password",
        "schema.framing",
        "sasl.password.file",
        "schema.registry.password.file",
        "ssl.key.password.file",
    }
)
# Secrets that may stand in a file: the setting of that name with `.file` after it.
SECRETS: Final = ("sasl.password", "schema.registry.password", "ssl.key.password")
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
MAX_PREFIX_CHARS: Final = 64
# In place of a file of authorities: librdkafka looks for the system's.
PROBE: Final = "probe"
FRAMINGS: Final = ("single-object", "confluent")
SINGLE_OBJECT, CONFLUENT = FRAMINGS


class NoBrokerError(ConfigError):
    """Nobody has said which broker to use, and none was found."""

    exit_code = 3


def state_dir() -> Path:
    """Return the folder in which a running broker leaves its address."""
    own = os.environ.get(STATE_ENV)
    if own:
        return Path(own)
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "skeletonhunter"


def discovered_bootstrap() -> str | None:
    """Return the address that `skeletonhunter broker run` left behind, if any."""
    try:
        found = parse_json(read_file(state_dir() / BROKER_FILE))
    except (OSError, ValueError):
        return None
    address = found.get("bootstrap") if isinstance(found, dict) else None
    return address if isinstance(address, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """A checked `[kafka]` table.

    `options` are librdkafka keys other than `bootstrap.servers`.
    """

    bootstrap: str
    cluster: str = "default"
    topic_prefix: str = ""
    registry_url: str | None = None
    registry_user: str | None = None
    registry_password: str | None = field(default=None, repr=False)
    # What is written, one of FRAMINGS; None: Confluent's where there is a registry. Both are read.
    framing: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    # As which role this process asks (`skeletonhunter acl`): said where Kafka refuses something.
    # "": as all of them, since a lab or a replay does what all do.
    role: str = "reader"

    def topic(self, name: str) -> str:
        """Return the topic's name on the broker."""
        return self.topic_prefix + name

    def librdkafka(self) -> dict[str, Any]:
        """Return the settings for a confluent-kafka client."""
        return {"bootstrap.servers": self.bootstrap, **self.options}


def load_settings(
    config: Path | None = None, *, bootstrap: str | None = None, prefix: str | None = None
) -> KafkaSettings:
    """Read the settings: arguments before environment before file before a running broker.

    Raises
    ------
    ConfigError
        If the file cannot be read or a setting is wrong, or if no broker is known.
    """
    table = read_table(config, "kafka")
    chosen = (
        bootstrap
        or os.environ.get(BOOTSTRAP_ENV)
        or table.pop("bootstrap.servers", None)
        or discovered_bootstrap()
    )
    table.pop("bootstrap.servers", None)
    if not chosen:
        raise NoBrokerError(
            "no Kafka broker known: start one with `skeletonhunter broker run`, or give "
            f"--bootstrap HOST:PORT or {BOOTSTRAP_ENV}"
        )
    if prefix is not None:
        table["topic.prefix"] = prefix
    return settings_from_table(str(chosen), table)


def settings_from_table(bootstrap: str, table: Mapping[str, Any]) -> KafkaSettings:
    """Check a `[kafka]` table and return the settings; all faults are named at once."""
    wrong: list[str] = []
    plain: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, bool):
            plain[key] = str(value).lower()
        elif isinstance(value, str | int | float):
            plain[key] = str(value)
        else:
            wrong.append(f"[kafka] {key} must be a string or a number (quote keys with dots)")
    wrong += _security_faults(plain)
    prefix = plain.get("topic.prefix", "")
    if len(prefix) > MAX_PREFIX_CHARS or not all(c.isalnum() or c in "._-" for c in prefix):
        wrong.append(
            f"topic.prefix={prefix!r}: at most {MAX_PREFIX_CHARS} letters, digits, '.', '_', '-'"
        )
    for secret in SECRETS:
        file = plain.get(f"{secret}.file")
        if not file:
            continue
        try:
            plain[secret] = read_file(Path(file)).decode().strip()
        except OSError as error:
            wrong.append(f"{secret}.file={file!r}: {error.strerror}")
        except UnicodeDecodeError as error:
            wrong.append(f"{secret}.file={file!r}: no UTF-8: {error.reason}")
    wrong += _odd_files(plain)
    if wrong:
        raise ConfigError("; ".join(wrong))
    if (alias := plain.pop("sasl.mechanisms", None)) is not None:
        plain["sasl.mechanism"] = alias
    return KafkaSettings(
        bootstrap=bootstrap,
        cluster=plain.get("cluster", "default"),
        topic_prefix=prefix,
        registry_url=plain.get("schema.registry.url"),
        registry_user=plain.get("schema.registry.user"),
        registry_password=plain.get("schema.registry.password"),
        framing=plain.get("schema.framing"),
        options={k: v for k, v in plain.items() if k not in OWN_KEYS},
    )


def _odd_files(plain: Mapping[str, str]) -> list[str]:
    """Return what is wrong with files that the TLS libraries open.

    They would wait for a pipe, and of a file that is not there they do not say which.
    """
    wrong = []
    for key, value in plain.items():
        if key.startswith("ssl.") and key.endswith(".location") and "\0" in value:
            wrong.append(f"{key}={value!r}: no name of a file")
        elif key.startswith("ssl.") and key.endswith(".location"):
            path = Path(value)
            if value == PROBE:
                continue
            if not path.exists():
                wrong.append(f"{key}={value!r}: No such file or directory")
            elif not (path.is_file() or path.is_dir()):
                wrong.append(f"{key}={value!r}: Not a regular file")
            elif not os.access(path, os.R_OK):
                wrong.append(f"{key}={value!r}: Permission denied")
    return wrong


def _security_faults(plain: Mapping[str, str]) -> list[str]:
    wrong: list[str] = []
    protocol = plain.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        wrong.append(f"security.protocol={protocol!r}: one of {', '.join(PROTOCOLS)}")
    # librdkafka knows the setting by two names, and its default is Kerberos: whoever logs in
    # says how.
    mechanisms = {plain[k] for k in ("sasl.mechanism", "sasl.mechanisms") if k in plain}
    if protocol.startswith("SASL") and len(mechanisms) != 1:
        wrong.append(
            f"security.protocol={protocol!r} needs one sasl.mechanism, such as "
            f"{', '.join(MECHANISMS)}"
        )
    if "@" in plain.get("schema.registry.url", ""):
        wrong.append(
            "schema.registry.url holds a login: use schema.registry.user and .password.file instead"
        )
    framing = plain.get("schema.framing", SINGLE_OBJECT)
    if framing not in FRAMINGS:
        wrong.append(f"schema.framing={framing!r}: one of {', '.join(FRAMINGS)}")
    elif framing == CONFLUENT and plain.get("schema.registry.url") is None:
        wrong.append(f"schema.framing={framing!r} needs schema.registry.url")
    return wrong
