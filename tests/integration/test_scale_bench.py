"""The live parts of `make bench-scale` at their smallest: real Kafka, processes and messages.

A benchmark of ten minutes on forty thousand RNICs must not rot between two of its runs.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ops.bench.cluster.connections import connect, produce_requests, send
from ops.bench.cluster.run import measure
from ops.bench.cluster.shape import RNIC, SPINE, ClusterShape
from ops.bench.rig.load import LoadShape
from ops.bench.scale.cluster import figures
from ops.bench.scale.workers import life
from ops.bench.throughput.rig import Rig
from ops.log.reading import LogReader
from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings
from schemas.topics import PROBE_ROUND

pytestmark = pytest.mark.broker

SHAPE = ClusterShape(agents=20, seconds=30, warm_s=3)
LIFE = LoadShape(agents=12, rnics=2, targets=5, bodies=3, late=0.0)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Give a broker that waits for nobody."""
    with Rig(tmp_path / "rig", join_ms=0) as made:
        yield made


def test_a_small_cluster_lives_and_its_faults_are_named(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    """Workers keep up, lists follow the churn and nothing else, both faults get their verdicts."""
    run = measure(
        SHAPE, tmp_path, lambda _: None, workers=1, bootstrap=kafka.bootstrap,
        prefix=kafka.topic_prefix,
    )  # fmt: skip
    told = run.summary
    assert told is not None
    assert run.ended == []
    assert run.drained_s is not None
    assert (told["unpublished"], told["lists_needless"], told["lists_wrong"]) == (0, 0, 0)
    assert told["containers"] >= 2
    assert told["lists"] >= told["agents_changed"] >= 2 * told["containers"] - 4 > 0
    # Eight RNICs to at least one peer by four 5-tuples, of sixteen hosts or so.
    assert told["results"] > 20 * 12 * 32
    assert [fault.what for fault in run.verdicts.injected] == [RNIC, SPINE]
    for fault in run.verdicts.injected:
        delay_s = run.verdicts.delay_s(fault)
        assert delay_s is not None
        assert 0.5 < delay_s < 15
    assert run.verdicts.false(begun=False) == []
    rows = {row.figure.partition(": ")[2]: row for row in figures([run])}
    assert rows["simulator: CPU, of a core"].value
    assert rows["worker: CPU, of a core"].value
    assert all(row.value is not None for row in rows.values() if row.bar is not None)


def test_workers_come_and_go_and_no_result_is_lost_or_double(rig: Rig) -> None:
    """One joins, one is killed: all windows that are due say what was sent, once."""
    rows = life(rig, 1, lambda _: None, shape=LIFE, plan=("join", "kill"), step_s=7.0)
    judged, lost, double, *_ = (row.value for row in rows)
    assert judged is not None
    assert judged > 12 * 10 * 15
    assert (lost, double) == (0, 0)


def test_rounds_of_many_connections_arrive(kafka: KafkaSettings) -> None:
    """Apache Kafka takes each request, and a reader finds what an agent would have sent."""
    topic = kafka.topic(PROBE_ROUND.name)
    with LogReader(kafka) as reader, ExitStack() as stack:
        requests = produce_requests(topic, len(reader.partitions([topic])), agents=12)
        connections = [stack.enter_context(c) for c in connect(kafka.bootstrap, requests)]
        told = send(connections, topic, seconds=2)
        assert (told["sent"], told["answered"], told["refused"]) == (24, 24, 0)
        ranges = reader.partitions([topic])
        ends = {place: found.high for place, found in ranges.items()}
        entries = [entry for _, entry in reader.read_to(dict.fromkeys(ends, 0), ends)]
    codec = Codec()
    rounds = [codec.decode(PROBE_ROUND, entry.value or b"") for entry in entries]
    assert Counter(r.agent_id for r in rounds) == {f"agent-job7-w{n}": 2 for n in range(12)}
    assert {len(r.results) for r in rounds} == {56}
