"""`tail` as its user runs it, against a real broker."""

import json
import os
import signal
from dataclasses import replace

import pytest

from schemas.enums import AnomalyKind
from schemas.kafka.connection import KafkaSettings
from schemas.topics import ANOMALY, PROBE_ROUND
from tests.integration.data_tools import cli, produce
from tests.unit.ops.recording_samples import START_MS, anomaly, round_entry

pytestmark = pytest.mark.broker


def tail(kafka: KafkaSettings, *arguments: str) -> tuple[int, str, str]:
    """Run tail to its end."""
    command = cli(kafka, "tail", *arguments, "--prefix", kafka.topic_prefix)
    out, err = command.communicate(timeout=60)
    return command.returncode, out, err


def test_bounds_key_limit_json(replay_kafka: KafkaSettings) -> None:
    """Time bounds, key and limit choose records; JSON is one object per line."""
    kafka = replay_kafka
    produce(
        kafka,
        PROBE_ROUND,
        [
            round_entry(p, at_ms=START_MS + i * 1000, agent_id=f"agent-h{p}")
            for i in range(10)
            for p in (0, 1)
        ],
    )
    code, out, err = tail(
        kafka, "probe.round.v1", "--from", "2026-01-01T00:00:03", "--to", "2026-01-01T00:00:06",
        "--key", "agent-h1", "--json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["timestamp_ms"] - START_MS for line in lines] == [3000, 4000, 5000]
    assert {line["key"] for line in lines} == {"agent-h1"}
    code, out, _ = tail(kafka, "probe.round.v1", "--no-follow", "--limit", "4")
    assert (code, len(out.splitlines())) == (0, 4)


def test_undecodable_is_shown_counted_and_fails(kafka: KafkaSettings) -> None:
    """Garbage is shown with its error between good records; the exit code says that there was."""
    good = round_entry()
    produce(kafka, PROBE_ROUND, [good, replace(good, value=b"\xc3\x01nonsense")])
    code, out, err = tail(kafka, "probe.round.v1", "--no-follow")
    assert code == 4
    assert len(out.splitlines()) == 2
    assert "(undecodable: unknown schema fingerprint" in out
    assert err == "1 of 2 records undecodable\n"


def test_progress_only_on_request(kafka: KafkaSettings) -> None:
    """PROGRESS records of anomaly.v1 are left out unless asked for."""
    produce(kafka, ANOMALY, [anomaly(AnomalyKind.PROGRESS), anomaly(AnomalyKind.LOSS)])
    assert len(tail(kafka, "anomaly.v1", "--no-follow")[1].splitlines()) == 1
    assert len(tail(kafka, "anomaly.v1", "--no-follow", "--all")[1].splitlines()) == 2


def test_following_ends_cleanly_by_ctrl_c(kafka: KafkaSettings) -> None:
    """Live records are printed as they come; Ctrl-C ends with code 0 and no word."""
    command = cli(
        kafka, "tail", "probe.round.v1", "--from", "beginning", "--prefix", kafka.topic_prefix
    )
    produce(kafka, PROBE_ROUND, [round_entry()])
    assert command.stdout is not None
    assert "agent-h0" in command.stdout.readline()
    command.send_signal(signal.SIGINT)
    out, err = command.communicate(timeout=60)
    assert (command.returncode, out, err) == (0, "", "")


def test_a_closed_pipe_is_quiet(kafka: KafkaSettings) -> None:
    """`tail … | head -1` ends without a word on standard error."""
    produce(kafka, PROBE_ROUND, [round_entry(offset=i) for i in range(2000)])
    read_end, write_end = os.pipe()
    command = cli(
        kafka, "tail", "probe.round.v1", "--no-follow", "--prefix", kafka.topic_prefix,
        stdout=write_end,
    )  # fmt: skip
    os.close(write_end)
    assert os.read(read_end, 10)
    os.close(read_end)
    _, err = command.communicate(timeout=60)
    assert err == ""
    assert command.returncode == 0


def test_unknown_topic_and_broker_are_plain_errors(kafka: KafkaSettings) -> None:
    """A mistyped topic lists those there are; a topic not made and a dead broker say so."""
    code, _, err = tail(kafka, "probe.rounds")
    assert code == 2
    assert "there are probe.round.v1, rnic.counters.v1" in err
    command = cli(kafka, "tail", "task.v1", "--no-follow", "--prefix", "never.")
    _, err = command.communicate(timeout=60)
    assert command.returncode == 3
    assert "no topic never.task.v1" in err
    assert "topics apply" in err
    assert "Traceback" not in err


def test_no_group_comes_to_be(kafka: KafkaSettings) -> None:
    """Reading leaves no consumer group behind."""
    from confluent_kafka.admin import AdminClient

    produce(kafka, PROBE_ROUND, [round_entry()])
    assert tail(kafka, "probe.round.v1", "--no-follow")[0] == 0
    admin = AdminClient(kafka.librdkafka())
    listing = admin.list_consumer_groups(request_timeout=10).result()
    assert not [g.group_id for g in listing.valid if g.group_id.startswith("skeletonhunter-reader")]
