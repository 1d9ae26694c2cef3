"""TLS settings of the table mean the same to Python's `ssl` as to librdkafka."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from schemas.kafka.connection import settings_from_table
from schemas.process.settings import ConfigError
from tests.certificates import CLIENT_KEY_PASSWORD, Certificates, make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Return an authority, and a client that it signed."""
    return make_certificates(tmp_path_factory.mktemp("tls"))


def mutual(certificates: Certificates) -> dict[str, str]:
    """Return a table for mutual TLS."""
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": str(certificates.ca),
        "ssl.certificate.location": str(certificates.client_certificate),
        "ssl.key.location": str(certificates.client_key),
        "ssl.key.password": CLIENT_KEY_PASSWORD,
    }


def test_mutual_tls_reaches_both_clients(certificates: Certificates) -> None:
    """Authority, certificate, key and its password are taken by librdkafka and by `ssl`."""
    settings = settings_from_table("127.0.0.1:1", mutual(certificates))
    Producer({**settings.librdkafka(), "log_level": 0})
    found = settings.aiokafka()
    context = found["ssl_context"]
    assert found["security_protocol"] == "SSL"
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert len(context.get_ca_certs()) == 1


def test_authority_may_stand_in_the_table(certificates: Certificates) -> None:
    """`ssl.ca.pem` holds what `ssl.ca.location` names."""
    table = {"security.protocol": "SSL", "ssl.ca.pem": certificates.ca.read_text()}
    context = settings_from_table("x:1", table).aiokafka()["ssl_context"]
    assert len(context.get_ca_certs()) == 1


def test_laxness_is_only_what_was_asked_for(certificates: Certificates) -> None:
    """Names are unchecked only where the table says so, and chains likewise."""
    table = {"security.protocol": "SSL", "ssl.ca.location": str(certificates.ca)}
    no_names = {**table, "ssl.endpoint.identification.algorithm": "none"}
    context = settings_from_table("x:1", no_names).aiokafka()["ssl_context"]
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    nothing = {**table, "enable.ssl.certificate.verification": False}
    context = settings_from_table("x:1", nothing).aiokafka()["ssl_context"]
    assert context.verify_mode is ssl.CERT_NONE


def without(key: str) -> Callable[[dict[str, str]], None]:
    """Return the change that takes a setting away."""
    return lambda table: table.__delitem__(key)


WRONG: dict[str, tuple[Callable[[dict[str, str]], None], str]] = {
    "no such authority": (lambda t: t.update({"ssl.ca.location": "/nosuch"}), "ssl.ca.location"),
    "authority is no PEM": (
        lambda t: t.update({"ssl.ca.location": t["ssl.key.location"]}),
        "ssl.ca.location",
    ),
    "no such key": (lambda t: t.update({"ssl.key.location": "/nosuch"}), "No such file"),
    "wrong key password": (
        lambda t: t.update({"ssl.key.password": "wrong-guess"}),
        "ssl.certificate.location",
    ),
    "no key password": (without("ssl.key.password"), "ssl.certificate.location"),
    "key in the table": (
        lambda t: t.update({"ssl.key.pem": "wrong-guess"}),
        "ssl.key.pem: the stream worker's client has no such setting",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_done_is_refused(certificates: Certificates, name: str) -> None:
    """A setting that would be lost, or does not fit, is named; no secret is shown, none asked."""
    change, message = WRONG[name]
    table = mutual(certificates)
    change(table)
    with pytest.raises(ConfigError) as caught:
        settings_from_table("x:1", table).aiokafka()
    assert message in str(caught.value)
    assert CLIENT_KEY_PASSWORD not in str(caught.value)
    assert "wrong-guess" not in str(caught.value)


def test_empty_authority_file_is_refused(tmp_path: Path) -> None:
    """An empty file trusts nobody; that is an error now, not at the first connection."""
    (tmp_path / "empty.pem").write_text("")
    table = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "empty.pem")}
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location"):
        settings_from_table("x:1", table).aiokafka()
