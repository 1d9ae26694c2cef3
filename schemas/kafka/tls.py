"""librdkafka's TLS settings as an `ssl.SSLContext`, for clients that take one."""

import ssl
from collections.abc import Mapping
from typing import Final

from schemas.process.settings import ConfigError

TRANSLATED: Final = frozenset(
    {
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
    }
)


def tls_context(options: Mapping[str, str]) -> ssl.SSLContext:
    """Return a context that trusts, checks and presents what librdkafka would.

    Raises
    ------
    ConfigError
        If a setting has no counterpart, a file cannot be read, or certificate,
        key and password do not fit together. Names settings, never secrets.
    """
    foreign = sorted(k for k in options if k.startswith("ssl.") and k not in TRANSLATED)
    if foreign:
        raise ConfigError(
            f"{', '.join(foreign)}: the stream worker's client has no such setting; it takes "
            f"{', '.join(sorted(TRANSLATED))}"
        )
    context = _trusting(options)
    _present_certificate(context, options)
    if options.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if options.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _trusting(options: Mapping[str, str]) -> ssl.SSLContext:
    location = options.get("ssl.ca.location")
    try:
        return ssl.create_default_context(cafile=location, cadata=options.get("ssl.ca.pem"))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        name = "ssl.ca.pem" if location is None else f"ssl.ca.location={location!r}"
        raise ConfigError(f"{name}: {_reason(error)}") from error


def _present_certificate(context: ssl.SSLContext, options: Mapping[str, str]) -> None:
    certificate = options.get("ssl.certificate.location")
    if certificate is None:
        return
    key = options.get("ssl.key.location")
    try:
        # Without a password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(certificate, key, options.get("ssl.key.password", ""))
    except OSError as error:
        raise ConfigError(
            f"ssl.certificate.location={certificate!r} with ssl.key.location={key!r}: "
            f"{_reason(error)}"
        ) from error


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "not PEM, or the password does not fit"
    return getattr(error, "strerror", None) or str(error)
