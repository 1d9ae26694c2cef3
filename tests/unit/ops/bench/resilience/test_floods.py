"""What floods and churn append: records that readers accept, and tombstones of all that left."""

from collections import Counter

from ops.bench.resilience.churn import LoggedContainers
from ops.bench.resilience.floods import FLOODS, WORKER_FLOWS, SkeletonFlood
from ops.bench.resilience.log_time import TimedLog
from schemas.codec import Codec
from schemas.topics import BY_NAME, ENDPOINT, PROBE_ROUND, RNIC_COUNTERS, TASK
from schemas.units import SECOND_NS
from streams.core.machine import FEW_ROWS, ROOMY

START_NS = 1_700_000_000 * SECOND_NS


class Kept(TimedLog):
    """A log that keeps what is appended."""

    def __init__(self) -> None:
        self.now_ns = START_NS
        self.codec = Codec()
        self.records: list[tuple[str, str, bytes | None]] = []
        self.marks = 0

    def append_value(self, topic: str, key: str, value: bytes | None) -> None:
        """Keep an encoded record."""
        self.records.append((topic, key, value))

    def flush(self) -> None:
        """Nothing is on its way."""

    def mark(self) -> None:
        """Count."""
        self.marks += 1


def test_each_record_of_a_flood_is_valid_and_names_another() -> None:
    """A number replaces the template's in key and value."""
    for flood in FLOODS:
        log = Kept()
        life = flood(log)
        for template, _ in life.templates():
            template.append(7)
            template.append(1_234_567)
        for topic, key, value in log.records:
            assert value is not None
            record = log.codec.decode(BY_NAME[topic], value, arrival_ns=log.now_ns)
            assert getattr(record, BY_NAME[topic].key_field) == key
        assert len({(topic, key) for topic, key, _ in log.records}) == len(log.records)


def test_a_partition_that_the_flood_fills_is_rebuilt_afterwards() -> None:
    """Where its rounds fill three quarters of what a partition may hold."""
    assert 0.75 * WORKER_FLOWS >= ROOMY * FEW_ROWS


def test_a_flood_lasts_a_minute_and_all_that_can_be_deleted_is() -> None:
    """So large a share of it, between the residents' records."""
    log = Kept()
    life = SkeletonFlood(log)
    life.run(0.001)
    assert log.now_ns <= START_NS + 60 * SECOND_NS
    came = {(topic, key) for topic, key, _ in log.records if topic != RNIC_COUNTERS.name}
    assert Counter(topic for topic, _ in came) == {ENDPOINT.name: 250, TASK.name: 50}
    life.leave(0.001)
    gone = {(topic, key) for topic, key, value in log.records if value is None}
    assert gone == came


def test_containers_publish_while_they_live_and_leave_nothing() -> None:
    """Every endpoint that came has a tombstone 30 s later; agents publish every 5 s.

    Every 20 s the localizer must not be further behind than 20 s.
    """
    log, waited_ns = Kept(), list[int]()
    containers = LoggedContainers(log, waited_ns.append)
    containers.run(100, 2)
    assert waited_ns == [START_NS + (at - 20) * SECOND_NS for at in range(40, 101, 20)]
    left = containers.present.start
    assert containers.came == 200
    assert left == 140
    gone = {key for topic, key, value in log.records if topic == ENDPOINT.name and value is None}
    assert gone == {f"ep:c{number}" for number in range(left)}
    rounds = Counter(key for topic, key, _ in log.records if topic == PROBE_ROUND.name)
    assert {rounds[f"agent-c{number}"] for number in range(left)} == {6}
    for topic, _, value in log.records:
        if value is not None:
            log.codec.decode(BY_NAME[topic], value, arrival_ns=log.now_ns)
