"""How records are shown."""

import json
from dataclasses import replace

import pytest

from ops.log.read_range import ReadRange, in_time_order
from ops.log.tail import as_json, as_line, find_topic, show
from ops.log.timespan import END, Bound
from schemas.codec import Codec, DecodeError
from schemas.enums import AnomalyKind
from schemas.kafka.deadletter import dead_letter
from tests.unit.ops.recording_samples import START_MS, anomaly, round_entry

# As the command reads: whatever is in the log is shown.
CODEC = Codec(bounded=False)
ROUNDS = find_topic("probe.round.v1")


def test_a_round_in_one_line() -> None:
    """The line for people has time, place, key, and counts of what became of the probes."""
    line = as_line(show(ROUNDS, round_entry(2, 7), CODEC))
    assert line.startswith("2026-01-01T00:00:00.000Z 2@7 agent-h0  round=7 results=2 ")
    assert "OK=1" in line
    assert "TIMEOUT=1" in line
    assert "rtt_p50=16.2us" in line
    assert "lost: c0/r0>c2/r0#0" in line


def test_json_has_key_place_time_headers_value() -> None:
    """The line for machines is one JSON object with all that Kafka and the schema hold."""
    line = json.loads(as_json(show(ROUNDS, round_entry(2, 7), CODEC)))
    assert {k: line[k] for k in ("topic", "partition", "offset", "key", "tombstone")} == {
        "topic": "probe.round.v1",
        "partition": 2,
        "offset": 7,
        "key": "agent-h0",
        "tombstone": False,
    }
    assert line["timestamp"] == "2026-01-01T00:00:00.000Z"
    assert line["timestamp_ms"] == START_MS
    assert line["headers"] == [{"name": "producer_version", "value": "0.1.0"}]
    assert line["value"]["results"][0]["rtt_ns"] == 16_183


def test_tombstones_are_shown() -> None:
    """A tombstone is said to be one, in both forms."""
    shown = show(ROUNDS, replace(round_entry(), value=None), CODEC)
    assert as_line(shown).endswith("(tombstone)")
    line = json.loads(as_json(shown))
    assert line["tombstone"] is True
    assert line["value"] is None


def test_undecodable_carries_error_and_bytes() -> None:
    """What cannot be decoded is shown with the reason and its bytes, and does not raise."""
    shown = show(ROUNDS, replace(round_entry(), value=b"\x00gar", key=b"\xff"), CODEC)
    assert shown.error is not None
    assert (
        "(undecodable: Confluent framing: set schema.registry.url to read it) [4 bytes 00676172]"
        in as_line(shown)
    )
    line = json.loads(as_json(shown))
    assert line["error"].startswith("Confluent framing")
    assert line["value_base64"] == "AGdhcg=="
    assert line["key_base64"] == "/w=="
    assert "key" not in line


def test_dead_letters_show_their_origin() -> None:
    """A dead letter is not decoded; its headers say from where and why."""
    error = DecodeError("too short", topic="probe.round.v1", partition=3, offset=99)
    letter = dead_letter(error, process="worker", key=None, value=b"xx", headers=[])
    entry = replace(round_entry(), value=letter.value, headers=tuple(letter.headers))
    shown = show(find_topic("probe.round.v1.dlq"), entry, CODEC)
    assert shown.error is None
    assert "from probe.round.v1[3]@99 by worker: too short [2 bytes 7878]" in as_line(shown)
    assert json.loads(as_json(shown))["origin"]["exception.message"] == "too short"


def test_terminal_escapes_cannot_pass() -> None:
    """A hostile key or field cannot move the cursor or colour the screen."""
    line = as_line(show(ROUNDS, replace(round_entry(), key=b"\x1b[2Jx\r\n"), CODEC))
    assert "\x1b" not in line
    assert "\\x1b[2Jx\\r\\n" in line


def test_progress_is_told_apart() -> None:
    """PROGRESS records of anomaly.v1 can be left out."""
    topic = find_topic("anomaly.v1")
    assert show(topic, anomaly(AnomalyKind.PROGRESS), CODEC).progress
    assert not show(topic, anomaly(AnomalyKind.LOSS), CODEC).progress


def test_json_stays_json_with_infinite_numbers() -> None:
    """A number that JSON lacks becomes text, so that every line can be parsed."""
    shown = show(find_topic("anomaly.v1"), anomaly(AnomalyKind.LATENCY, float("inf")), CODEC)
    line = json.loads(as_json(shown), parse_constant=pytest.fail)
    assert line["value"]["value"] == "inf"


def test_times_and_durations_are_readable() -> None:
    """The general line gives times as dates and leaves out what is null or said before."""
    line = as_line(show(find_topic("anomaly.v1"), anomaly(AnomalyKind.LOSS, 0.25), CODEC))
    assert "event_at=2026-01-01T00:00:00.000000Z" in line
    assert "value=0.25" in line
    assert "path_id" not in line
    assert "reference" not in line


def test_unknown_topic_lists_those_there_are() -> None:
    """A mistyped topic is answered with the list."""
    with pytest.raises(KeyError, match=r"probe\.round\.v1, rnic\.counters\.v1"):
        find_topic("probe.rounds")
    assert find_topic("task.v1.dlq").dead_letters


def test_batches_are_sorted_across_but_never_within_partitions() -> None:
    """Sorting by time keeps each partition's own order, even where its clock went back."""
    times = [(0, 5), (0, 3), (1, 1), (1, 4), (0, 9)]
    batch = [(("t", p), round_entry(p, i, at_ms=START_MS + ms)) for i, (p, ms) in enumerate(times)]
    assert [e.offset for _, e in in_time_order(batch)] == [2, 3, 0, 1, 4]


class TestSpan:
    """When a bounded reading is over."""

    A, B = ("t", 0), ("t", 1)

    def test_ends_at_the_end_there_was(self) -> None:
        """Without following, records beyond the end at the start are left out."""
        span = ReadRange({self.A: 3, self.B: 5}, {self.A: 5, self.B: 5}, END, follow=False)
        assert span.open == {self.A}
        assert [span.takes(self.A, o, 1) for o in (3, 4, 5)] == [True, True, False]
        assert not span.open

    def test_ends_at_the_end_of_what_compaction_left(self) -> None:
        """If the last offsets are gone, reaching the end is enough."""
        span = ReadRange({self.A: 0}, {self.A: 9}, END, follow=False)
        assert span.takes(self.A, 2, 1)
        span.at_end({self.A}, 0)
        assert not span.open

    def test_a_record_at_to_ends_its_partition_only(self) -> None:
        """`--to` cuts each partition at its first record that is not earlier."""
        span = ReadRange(
            {self.A: 0, self.B: 0}, {self.A: 9, self.B: 9}, Bound("time", 100), follow=False
        )
        assert span.takes(self.A, 0, 99)
        assert not span.takes(self.A, 1, 100)
        assert not span.takes(self.A, 2, 50)
        assert span.open == {self.B}

    def test_a_time_ahead_ends_the_following(self) -> None:
        """A `--to` in the future follows until then, and waits for those that come late."""
        span = ReadRange({self.A: 0}, {self.A: 0}, Bound("time", 10_000), follow=True)
        span.at_end({self.A}, 10_001)
        assert span.open
        span.at_end({self.A}, 13_001)
        assert not span.open

    def test_following_never_ends_by_itself(self) -> None:
        """Without `--to`, reaching the end means waiting."""
        span = ReadRange({self.A: 0}, {self.A: 0}, END, follow=True)
        span.at_end({self.A}, 2**60)
        assert span.open
