"""What Kafka's refusals and failed connections say, in words that tell what to do.

Codes are those of Kafka's protocol and of librdkafka, so that no client is imported here.
"""

from collections.abc import Iterable
from typing import Any, Final

from schemas.kafka.connection import KafkaSettings
from schemas.kafka.errors import BrokerError

# Errors of org.apache.kafka.common.protocol.Errors that mean: this principal may not.
TOPIC_REFUSED: Final = 29
GROUP_REFUSED: Final = 30
CLUSTER_REFUSED: Final = 31
TRANSACTIONAL_ID_REFUSED: Final = 53
REFUSALS: Final = frozenset(
    {TOPIC_REFUSED, GROUP_REFUSED, CLUSTER_REFUSED, TRANSACTIONAL_ID_REFUSED}
)
# Librdkafka's own (rdkafka.h): why there is no connection, the most telling first.
_AUTHENTICATION: Final = -169
_SSL: Final = -181
_RESOLVE: Final = -193
_TRANSPORT: Final = -195
TELLING: Final = (_AUTHENTICATION, _SSL, _RESOLVE, _TRANSPORT)
_ALL_BROKERS_DOWN: Final = -187
_INVALID_ARGUMENT: Final = -186
# By this OpenSSL's own reasons begin, which librdkafka also reports as failures of the connection.
_OPENSSL: Final = "SSL routines::"
ADVICE: Final = {
    _AUTHENTICATION: "check sasl.mechanism, sasl.username and the password",
    _SSL: "check ssl.ca.location, ssl.certificate.location and the certificates on both sides",
}
# A client that speaks another protocol than the listener hears nothing but the end of it.
NO_REASON: Final = (
    "the connection was closed without a reason: perhaps the listener does not speak "
    "security.protocol={protocol}"
)
NO_ANSWER: Final = (
    "nothing was answered in time: perhaps it hangs or is still starting, or drops what comes"
)
# Stands for what only the broker knows.
PRINCIPAL: Final = "PRINCIPAL"
# Files with a client's certificate.
_CERTIFICATES: Final = ("ssl.certificate.location", "ssl.keystore.location")
# How long it took, and what librdkafka advises those who build it; the rest says what happened.
_ASIDES: Final = (" (after ", ": broker certificate could not be verified, verify that")


class AccessError(BrokerError):
    """The broker does not let this principal do what the process must do."""


def refusal(
    settings: KafkaSettings, error: Any, operation: str, resource: str
) -> AccessError | None:
    """Return what a client's error refuses; None where it is another error, or none.

    Parameters
    ----------
    error
        Has the method `code`, as confluent-kafka's KafkaError.
    operation, resource
        As Kafka names them, such as `Read` of `topic anomaly.v1`.
    """
    if error is None or error.code() not in REFUSALS:
        return None
    return refused(settings, f"{operation} of {resource}")


def refused(settings: KafkaSettings, what: str) -> AccessError:
    """Return the error that says who may not do what, and how it is granted."""
    return AccessError(
        f"Kafka at {settings.bootstrap} refuses {principal(settings)}: {what}. A super user grants "
        f"it by `{grant(settings)}`{_how_certificates_are_named(settings)}"
    )


def grant(settings: KafkaSettings) -> str:
    """Return the command that grants what the process of these settings needs."""
    prefix = f" --prefix {settings.topic_prefix}" if settings.topic_prefix else ""
    who = PRINCIPAL if _certificate(settings) else principal(settings)
    roles = f"--for {settings.role}={who}" if settings.role else f"--principal {who}"
    return f"skeletonhunter acl apply {roles}{prefix}"


def principal(settings: KafkaSettings) -> str:
    """Return the principal under which Kafka knows a client with these settings.

    What only the broker knows (a certificate's subject by its mapping rules, a token's owner) is
    named by what it is made from.
    """
    options = settings.options
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    if protocol.startswith("SASL"):
        mechanism = options.get("sasl.mechanism", "SASL")
        return f"User:{options.get('sasl.username', f'<of the {mechanism} login>')}"
    if certificate := _certificate(settings):
        return f"User:<subject of {certificate}>"
    return "User:ANONYMOUS"


def _certificate(settings: KafkaSettings) -> str | None:
    """Return the file of the certificate that is the login; None where none is."""
    if settings.options.get("security.protocol", "").upper() != "SSL":
        return None
    return next((settings.options[k] for k in _CERTIFICATES if k in settings.options), None)


def _how_certificates_are_named(settings: KafkaSettings) -> str:
    certificate = _certificate(settings)
    if certificate is None:
        return ""
    return (
        f", where {PRINCIPAL} is User: and that subject (`openssl x509 -in {certificate} -noout "
        "-subject -nameopt RFC2253`), or what the broker's ssl.principal.mapping.rules make of it"
    )


class ConnectionErrors:
    """A client's `error_cb` that keeps the most telling reason for which it has no connection.

    Attributes
    ----------
    all_down
        Whether every broker that the client knows has failed.
    """

    def __init__(self) -> None:
        self.all_down = False
        self._found: dict[int, str] = {}

    def __call__(self, error: Any) -> None:
        """Take an error of the client."""
        self.all_down |= error.code() == _ALL_BROKERS_DOWN
        if error.code() in TELLING:
            self._found[_kind(error)] = reason(error)

    def reason(self, settings: KafkaSettings) -> str:
        """Return the most telling reason so far, with what to look at."""
        told = next((self._found[code] for code in TELLING if code in self._found), None)
        if told is not None:
            return told
        protocol = settings.options.get("security.protocol", "PLAINTEXT")
        return NO_REASON.format(protocol=protocol) if self.all_down else NO_ANSWER


def settings_fault(error: BaseException) -> str | None:
    """Return what a client did not take of the `[kafka]` table; None: it is another error."""
    cause: Any = next(iter(error.args), None)
    if not hasattr(cause, "code") or cause.code() != _INVALID_ARGUMENT:
        return None
    return f"[kafka]: {cause.str()}"


def _kind(error: Any) -> int:
    return _SSL if _OPENSSL in error.str() else int(error.code())


def reason(error: Any) -> str:
    """Return an error's text and, where it is one of login or TLS, which settings to look at."""
    text = str(error.str())
    for aside in _ASIDES:
        text = text.split(aside, maxsplit=1)[0]
    advice = ADVICE.get(_kind(error))
    return text if advice is None else f"{text} ({advice})"


def named(kind: str, names: Iterable[str]) -> str:
    """Return resources of a kind in one phrase.

    >>> named("topic", ["b", "a"])
    'topics a, b'
    """
    listed = sorted(names)
    return f"{kind}{'s' if len(listed) > 1 else ''} {', '.join(listed)}"
