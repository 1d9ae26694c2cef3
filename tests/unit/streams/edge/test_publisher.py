"""Many messages at once: only the ends are reported, and what is missing between them is found."""

import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.kafka.connection import KafkaSettings
from streams.edge.errors import SessionLostError
from streams.edge.publisher import CHUNK_MESSAGES, LIMIT_SHARE, Publisher

Report = Callable[[Any, Any], None]


class Client:
    """Takes messages; reports them when a test says so."""

    def __init__(self, _options: dict[str, Any], **_more: Any) -> None:
        self.reports: list[Report | None] = []
        self.purged = False

    def __len__(self) -> int:
        return 0

    def produce(self, *_message: Any, on_delivery: Report | None = None, **_more: Any) -> None:
        """Queue a message."""
        self.reports.append(on_delivery)

    def poll(self, _timeout_s: float) -> None:
        """Serve nothing."""

    def purge(self) -> None:
        """Note that what waits is given up."""
        self.purged = True


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a publisher with that client."""
    monkeypatch.setattr("streams.edge.publisher.Producer", Client)
    made = Publisher(KafkaSettings(bootstrap="127.0.0.1:1"), session_timeout_s=10)
    yield made
    made.abandon()


def report(offset: int | None) -> Any:
    """Return a message as the client reports it."""
    return SimpleNamespace(topic=lambda: "windows", partition=lambda: 3, offset=lambda: offset)


def sent(publisher: Any, count: int, offsets: Sequence[int | None]) -> list[int]:
    """Send so many, let the ends be confirmed with these offsets; return what was told."""
    told: list[int] = []
    values = [b"value"] * count
    publisher.send_all(
        "windows", values, values, partition=3, timestamp_ms=1, confirmed=told.append
    )
    receipt, reports = publisher.receipt(), list(filter(None, publisher._producer.reports))
    assert receipt.open == len(reports) == len(offsets)
    for delivered, offset in zip(reports, offsets, strict=True):
        assert not told
        delivered(None, report(offset))
    publisher.wait(receipt)
    return told


@pytest.mark.parametrize(
    ("count", "offsets"),
    [(1, [7]), (2, [7, 8]), (5_000, [7, 5_006]), (5_000, [7, 5_008])],
)
def test_the_last_offset_is_told_when_all_are_there(
    publisher: Any, count: int, offsets: list[int]
) -> None:
    """Also where a record of somebody else lies between them."""
    assert sent(publisher, count, offsets) == [offsets[-1]]


def test_no_messages_are_no_wait(publisher: Any) -> None:
    """A machine may close a window in which nothing was measured."""
    assert sent(publisher, 0, []) == []


@pytest.mark.parametrize(
    ("count", "offsets"), [(5_000, [7, 5_005]), (2, [None, 8]), (2, [7, None])]
)
def test_a_missing_message_is_not_confirmed(
    publisher: Any, count: int, offsets: list[int | None]
) -> None:
    """The client dropped one that had waited too long: nothing of the batch may be committed.

    Nor where it does not know the offset of an end, which it says by None.
    """
    with pytest.raises(SessionLostError, match=r"windows\[3\]: of .* messages some are missing"):
        sent(publisher, count, offsets)


def test_what_waits_behind_a_message_that_was_given_up_is_given_up(publisher: Any) -> None:
    """At once, not when the session is closed: outputs in the log are a beginning of all."""
    publisher.send("windows", b"first", partition=3)
    receipt = publisher.receipt()
    publisher.send("windows", b"second", partition=3)
    first, _ = publisher._producer.reports
    first(SimpleNamespace(str=lambda: "timed out", code=lambda: -192), report(None))
    with pytest.raises(SessionLostError, match=r"windows\[3\]: timed out"):
        publisher.wait(receipt)
    assert publisher._producer.purged


def test_a_process_that_stood_still_in_the_middle_of_many_sends_no_more(publisher: Any) -> None:
    """Its partitions may be another's: what it goes on with would stand beside the other's."""
    client, values = publisher._producer, [b"value"] * 8_000
    produce = client.produce

    def stopped(*message: Any, **more: Any) -> None:
        produce(*message, **more)
        if len(client.reports) == 10:
            # As SIGSTOP would have it.
            publisher._pulse._last -= 60

    client.produce = stopped
    with pytest.raises(SessionLostError, match="stood still"):
        publisher.send_all("windows", values, values, partition=3, timestamp_ms=1, confirmed=print)
    assert len(client.reports) <= CHUNK_MESSAGES
    assert client.purged


def test_what_waits_too_long_is_given_up_whatever_the_sender_is_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All at once: what was sent later must not reach a broker that comes back without it."""
    monkeypatch.setattr("streams.edge.publisher.Producer", Client)
    # A machine that stalls is not what is tested.
    monkeypatch.setattr("streams.edge.publisher.LIMIT_SHARE", 10)
    publisher: Any = Publisher(KafkaSettings(bootstrap="127.0.0.1:1"), session_timeout_s=5)
    publisher.send("windows", b"first", partition=3)
    time.sleep(0.3)
    publisher.send("windows", b"second", partition=3)
    assert not publisher._producer.purged
    # The sender is busy: nobody but the publisher's own thread looks.
    end = time.monotonic() + 30
    while not publisher._producer.purged and time.monotonic() < end:
        time.sleep(0.05)
    assert publisher._producer.purged
    with pytest.raises(SessionLostError, match=r"not within 2\.8 s"):
        publisher.send("windows", b"third", partition=3)
    assert len(publisher._producer.reports) == 2
    publisher.abandon()


def test_reports_are_taken_while_the_sender_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the broker has confirmed in time is not given up because nobody has looked."""

    class Answering(Client):
        def poll(self, _timeout_s: float) -> None:
            reports, self.reports = self.reports, []
            for offset, delivered in enumerate(filter(None, reports)):
                delivered(None, report(offset))

    monkeypatch.setattr("streams.edge.publisher.Producer", Answering)
    # A machine that stalls is not what is tested.
    monkeypatch.setattr("streams.edge.publisher.LIMIT_SHARE", 10)
    publisher: Any = Publisher(KafkaSettings(bootstrap="127.0.0.1:1"), session_timeout_s=5)
    told: list[int] = []
    publisher.send("windows", b"first", partition=3, confirmed=told.append)
    receipt = publisher.receipt()
    time.sleep(3.2)
    assert (receipt.open, told, publisher._producer.purged) == (0, [0], False)
    publisher.send("windows", b"second", partition=3)
    publisher.abandon()


def test_a_sender_that_has_the_lock_keeps_no_beat_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it has, nearly always, while it waits for confirmations: that is no standing still."""
    monkeypatch.setattr("streams.edge.publisher.Producer", Client)
    publisher: Any = Publisher(KafkaSettings(bootstrap="127.0.0.1:1"), session_timeout_s=6)
    with publisher._lock:
        time.sleep(6 * LIMIT_SHARE + 0.5)
        assert publisher._pulse.steady()
    publisher.abandon()
