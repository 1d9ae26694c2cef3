"""How many workers a replay starts."""

import os

import pytest

from ops.recording.manifest import TopicSummary
from ops.recording.verdicts import workers_for
from schemas.topics import PROBE_ROUND


@pytest.mark.parametrize(
    ("rounds", "partitions", "cores", "expected"),
    [
        (0, 4, 8, 1),
        (150_000, 4, 8, 1),
        (250_000, 4, 8, 2),
        (10**9, 4, 8, 4),
        (10**9, 12, 4, 3),
        (10**9, 12, 2, 1),
        (10**9, 12, 1, 1),
    ],
)
def test_workers_share_what_is_worth_it(
    monkeypatch: pytest.MonkeyPatch, rounds: int, partitions: int, cores: int, expected: int
) -> None:
    """One a core, but none that would start for longer than it works, and none without work."""
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    summary = TopicSummary(file="x.avro", partitions=partitions, records=rounds)
    assert workers_for({PROBE_ROUND.name: summary}) == expected


def test_a_recording_without_rounds_has_one() -> None:
    """It says that nothing comes."""
    assert workers_for({}) == 1
