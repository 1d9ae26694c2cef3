"""Dead letters that reach no broker are told of."""

from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import Message

from schemas.codec import DecodeError
from schemas.kafka import letters
from schemas.kafka.connection import KafkaSettings
from schemas.process.eventlog import EventLog


def test_what_no_broker_takes_is_said_at_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody listens on port 1: each letter is given up, with the reason, once it has waited."""
    monkeypatch.setattr(letters, "FLUSH_TIMEOUT_S", 0.2)
    settings = KafkaSettings(bootstrap="127.0.0.1:1")
    box = letters.LetterBox(settings, "worker", EventLog("worker"))
    garbage = SimpleNamespace(
        topic=lambda: "task.v1", key=lambda: b"k", value=lambda: b"v", headers=list
    )
    error = DecodeError("no framing", topic="task.v1", partition=0, offset=1)
    box.put(error, cast(Message, garbage))
    box.write()
    box.close()
    (said,) = [r for r in caplog.records if r.message == "dead_letter.lost"]
    assert said.__dict__["fields"]["letters"] == 1
