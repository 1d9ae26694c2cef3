"""Refusals and failed connections say who may not do what, and what to look at."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from schemas.kafka.access import ConnectionErrors, grant, principal, refusal, settings_fault
from schemas.kafka.connection import KafkaSettings

OTHER = -195


def settings(**options: str) -> KafkaSettings:
    """Return settings of a worker; `__` stands for a dot."""
    return KafkaSettings(
        bootstrap="b:1",
        topic_prefix="p.",
        role="worker",
        options={k.replace("__", "."): v for k, v in options.items()},
    )


def error(code: int, text: str = "") -> Any:
    """Return what a client gives."""
    return SimpleNamespace(code=lambda: code, str=lambda: text)


SCRAM = {"security__protocol": "SASL_SSL", "sasl__mechanism": "SCRAM-SHA-512"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "User:ANONYMOUS"),
        ({**SCRAM, "sasl__username": "alice"}, "User:alice"),
        (
            {"security__protocol": "sasl_ssl", "sasl__mechanism": "GSSAPI"},
            "User:<of the GSSAPI login>",
        ),
        (
            {"security__protocol": "SSL", "ssl__certificate__location": "/c.pem"},
            "User:<subject of /c.pem>",
        ),
        (
            {"security__protocol": "ssl", "ssl__keystore__location": "/c.p12"},
            "User:<subject of /c.p12>",
        ),
        # The broker asks for no certificate where it asks for a password.
        ({**SCRAM, "sasl__username": "alice", "ssl__certificate__location": "/c"}, "User:alice"),
    ],
)
def test_principal_is_the_login_or_what_it_is_made_from(
    options: dict[str, str], expected: str
) -> None:
    """Kafka knows a client by its login; what only the broker knows is not guessed."""
    assert principal(settings(**options)) == expected


@pytest.mark.parametrize("code", [29, 30, 31, 53])
def test_a_refusal_names_principal_operation_resource_and_the_command(code: int) -> None:
    """Whoever reads it can act at once."""
    found = refusal(
        settings(**SCRAM, sasl__username="alice"), error(code), "Read", "topic p.anomaly.v1"
    )
    assert str(found) == (
        "Kafka at b:1 refuses User:alice: Read of topic p.anomaly.v1. A super user grants it by "
        "`skeletonhunter acl apply --for worker=User:alice --prefix p.`"
    )
    assert found is not None
    assert found.exit_code == 3


def test_a_refused_certificate_is_told_how_to_find_its_principal() -> None:
    """Only the broker knows what it makes of the subject."""
    own = settings(security__protocol="SSL", ssl__certificate__location="/c.pem")
    assert str(refusal(own, error(29), "Read", "topic t")) == (
        "Kafka at b:1 refuses User:<subject of /c.pem>: Read of topic t. A super user grants it by "
        "`skeletonhunter acl apply --for worker=PRINCIPAL --prefix p.`, where PRINCIPAL is User: "
        "and that subject (`openssl x509 -in /c.pem -noout -subject -nameopt RFC2253`), or what "
        "the broker's ssl.principal.mapping.rules make of it"
    )


def test_who_does_what_all_do_is_granted_all_roles() -> None:
    """A lab, a replay."""
    own = replace(settings(**SCRAM, sasl__username="alice"), role="")
    assert grant(own) == "skeletonhunter acl apply --principal User:alice --prefix p."


def test_other_errors_refuse_nothing() -> None:
    """A broker that is away, or no error at all, is no refusal."""
    assert refusal(settings(), error(OTHER), "Read", "x") is None
    assert refusal(settings(), None, "Read", "x") is None
    assert "--prefix" not in grant(KafkaSettings(bootstrap="b:1"))


def test_the_most_telling_reason_of_a_failed_connection_is_kept() -> None:
    """TLS and SASL say more than that a connection failed; timings and advice are left out."""
    errors = ConnectionErrors()
    assert "nothing was answered" in errors.reason(settings())
    assert not errors.all_down
    errors(error(-187, "1/1 brokers are down"))
    assert errors.all_down
    assert "does not speak security.protocol=PLAINTEXT" in errors.reason(settings())
    errors(error(OTHER, "b:1: Connect failed: Connection refused (after 0ms in state CONNECT)"))
    assert errors.reason(settings()) == "b:1: Connect failed: Connection refused"
    errors(error(OTHER, "b:1: error:0A00045C:SSL routines::tlsv13 alert certificate required"))
    assert "certificate required (check ssl.ca.location" in errors.reason(settings())
    errors(
        error(
            -181,
            "b:1: SSL handshake failed: certificate verify failed: broker certificate could not be "
            "verified, verify that ssl.ca.location is correctly configured (after 9ms in state X)",
        )
    )
    assert errors.reason(settings()) == (
        "b:1: SSL handshake failed: certificate verify failed (check ssl.ca.location, "
        "ssl.certificate.location and the certificates on both sides)"
    )
    errors(error(-169, "b:1: SASL authentication error: invalid credentials (after 1ms in state)"))
    errors(error(OTHER, "later"))
    assert "invalid credentials (check sasl.mechanism" in errors.reason(settings())


def test_a_setting_that_librdkafka_does_not_take_is_told_from_other_errors() -> None:
    """It is the user's, who needs no trace."""
    with pytest.raises(KafkaException) as caught:
        Producer({"security.protocl": "SSL"})
    assert settings_fault(caught.value) == (
        '[kafka]: No such configuration property: "security.protocl"'
    )
    assert settings_fault(ValueError("x")) is None
    assert settings_fault(KeyError()) is None
