"""Many messages at once: only the ends are reported, and what is missing between them is found."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.connection import KafkaSettings
from streams.errors import SessionLostError
from streams.publisher import Publisher

Report = Callable[[Any, Any], None]


class Client:
    """Takes messages; reports them when a test says so."""

    def __init__(self, _options: dict[str, Any], **_more: Any) -> None:
        self.reports: list[Report | None] = []

    def __len__(self) -> int:
        return 0

    def produce(self, *_message: Any, on_delivery: Report | None = None, **_more: Any) -> None:
        """Queue a message."""
        self.reports.append(on_delivery)

    def poll(self, _timeout_s: float) -> None:
        """Serve nothing."""

    def purge(self) -> None:
        """Forget nothing."""


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a publisher with that client."""
    monkeypatch.setattr("streams.publisher.Producer", Client)
    made = Publisher(KafkaSettings(bootstrap="127.0.0.1:1"), session_timeout_s=10)
    yield made
    made.abandon()


def sent(publisher: Any, count: int, offsets: list[int]) -> list[int]:
    """Send so many, let the ends be confirmed with these offsets; return what was told."""
    told: list[int] = []
    values = [b"value"] * count
    publisher.send_all(
        "windows", values, values, partition=3, timestamp_ms=1, confirmed=told.append
    )
    receipt, reports = publisher.receipt(), list(filter(None, publisher._producer.reports))
    assert receipt.open == len(reports) == len(offsets)
    for report, offset in zip(reports, offsets, strict=True):
        assert not told
        place = SimpleNamespace(
            topic=lambda: "windows", partition=lambda: 3, offset=lambda n=offset: n
        )
        report(None, place)
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


@pytest.mark.parametrize(("count", "offsets"), [(5_000, [7, 5_005]), (2, [-1001, 8])])
def test_a_missing_message_is_not_confirmed(publisher: Any, count: int, offsets: list[int]) -> None:
    """The client dropped one that had waited too long: nothing of the batch may be committed."""
    with pytest.raises(SessionLostError, match=r"windows\[3\]: of .* messages some are missing"):
        sent(publisher, count, offsets)
