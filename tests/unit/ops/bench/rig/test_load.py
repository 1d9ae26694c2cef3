"""The load of the throughput bench: what its rounds are, and that they are those of the schema."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from ops.bench.rig.load import AGAIN_ROUNDS, LATE_ROUNDS, Load, LoadShape, Sent
from probers.probing.plan import shuffled
from schemas.codec import Codec
from schemas.topics import PROBE_ROUND
from streams.columns.rounds import round_columns

START_US = 1_790_000_000 * 10**6
SHAPE = LoadShape(agents=6, rnics=2, targets=5, bodies=5, lost=2e-3, cut=0.02, late=0.05,
                  twice=0.05)  # fmt: skip
SMOOTH = LoadShape(agents=6, rnics=2, targets=5, bodies=5, lost=0, cut=0, late=0, twice=0)


def rounds(shape: LoadShape, intervals: int) -> list[tuple[Sent, dict[str, Any]]]:
    """Return what is published, decoded by the project's codec."""
    codec = Codec()
    return [
        (sent, codec.decode_datum(PROBE_ROUND, sent.value))
        for sent in Load(shape).rounds(intervals, START_US)
    ]


@pytest.fixture(scope="module")
def published() -> list[tuple[Sent, dict[str, Any]]]:
    """Give a load with much that goes wrong."""
    return rounds(SHAPE, 120)


def test_a_load_is_the_same_each_time() -> None:
    """Same shape, same bytes: figures of two runs are of the same load."""
    assert list(Load(SHAPE).rounds(20, START_US)) == list(Load(SHAPE).rounds(20, START_US))


def test_every_round_is_one_that_a_worker_takes(published: list[Any]) -> None:
    """Header and results fit together, whole or patched: the worker's own checks pass."""
    for sent, datum in published:
        columns = round_columns(datum)
        assert columns.count == sent.results
        assert sent.key.decode() == datum["agent_id"]
        assert sent.at_ms == datum["started_at"] // 1000


def test_encoded_anew_a_round_has_the_same_bytes(published: list[Any]) -> None:
    """A patched round is what the codec would have made of it."""
    codec = Codec()
    for sent, datum in published[:300]:
        assert codec.encode_datum(PROBE_ROUND, datum) == sent.value


def test_without_trouble_each_agent_has_one_round_an_interval() -> None:
    """Distinct agents, distinct paths, one round a second each, in order of their start."""
    found = rounds(SMOOTH, 30)
    assert Counter(sent.key for sent, _ in found) == {
        f"agent-job7-w{n}".encode(): 30 for n in range(SMOOTH.agents)
    }
    starts = [sent.at_ms for sent, _ in found]
    assert starts == sorted(starts)
    paths = {(r["src"], r["dst"]) for _, datum in found for r in datum["results"]}
    assert len(paths) == SMOOTH.paths
    assert all(r["status"] == "OK" for _, datum in found for r in datum["results"])


def test_round_trips_are_log_normal_and_vary() -> None:
    """Their logarithms spread about each path as the model says, and no round is all another's."""
    by_path: dict[tuple[str, str], list[int]] = {}
    for _, datum in rounds(LoadShape(agents=1, bodies=64, lost=0, cut=0), 64):
        for r in datum["results"]:
            by_path.setdefault((r["src"], r["dst"]), []).append(r["rtt_ns"])
    logs = [np.log(np.array(trips)) for trips in by_path.values()]
    quarters = [np.subtract(*np.percentile(log, [75, 25])) / 1.349 for log in logs]
    assert np.median(quarters) == pytest.approx(0.06, rel=0.25)
    assert len({tuple(trips[:5]) for trips in by_path.values()}) > 0.9 * len(by_path)


def test_probes_leave_as_agents_send_them() -> None:
    """In the agent's own shuffled order, the same each round; in slots, 14 µs and more apart."""
    orders = {
        (datum["agent_id"], tuple((r["src"], r["dst"]) for r in datum["results"]))
        for _, datum in rounds(SMOOTH, 10)
    }
    assert len(orders) == SMOOTH.agents
    for agent_id, order in orders:
        assert list(order) == shuffled(order, agent_id) != sorted(order)
    load = Load(SMOOTH)
    for _ in range(20):
        offsets = load._agents[0].draw(load._rng)[0]
        assert offsets[0] > 60_000
        assert offsets[-1] < 300_000_000
        assert np.diff(offsets).min() >= 13_500


def test_offsets_and_delays_are_told_as_agents_tell_them(published: list[Any]) -> None:
    """In multiples of 1,024 ns; round trips are not."""
    results = [r for _, datum in published for r in datum["results"] if r["rtt_ns"] is not None]
    for name in ("sent_offset_ns", "prober_delay_ns", "responder_delay_ns"):
        assert all(r[name] % 1_024 == 0 for r in results), name
        assert len({r[name] for r in results}) > 100
    assert sum(r["rtt_ns"] % 1_024 == 0 for r in results) < 0.1 * len(results)


def test_lost_probes_are_sent_again(published: list[Any]) -> None:
    """A probe that is lost is followed by one of the same 5-tuple; one that is cut by two."""
    lost = 0
    for sent, datum in published:
        by_path: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for r in datum["results"]:
            by_path.setdefault((r["src"], r["dst"]), []).append(r)
        for path, results in by_path.items():
            statuses = [r["status"] == "OK" for r in results]
            if path == sent.cut:
                assert not any(statuses)
                assert len(statuses) >= 3
            elif not all(statuses):
                lost += 1
                assert statuses == [False, True]
                assert results[0]["rtt_ns"] is None
        offsets = [r["sent_offset_ns"] for r in datum["results"]]
        assert offsets == sorted(offsets)
    assert lost > 0
    assert any(sent.cut for sent, _ in published)


def test_a_cut_lasts_its_rounds(published: list[Any]) -> None:
    """A 5-tuple that is cut stays so for the rounds of the shape."""
    runs: Counter[tuple[str, str]] = Counter()
    seen = set()
    for sent, datum in published:
        if sent.cut and (sent.key, datum["round_seq"]) not in seen:
            seen.add((sent.key, datum["round_seq"]))
            runs[sent.cut] += 1
    whole = [n for n in runs.values() if n % SHAPE.cut_rounds == 0]
    # The last ones of an agent may be cut short by the end of the load.
    assert len(whole) >= len(runs) - SHAPE.agents


def test_late_and_double_rounds_come_behind_their_time(published: list[Any]) -> None:
    """Late ones once, behind rounds that began after them; double ones with the same bytes."""
    values = Counter(sent.value for sent, _ in published)
    assert set(values.values()) == {1, 2}
    newest = 0
    behind_ms = []
    for sent, _ in published:
        behind_ms.append(max(0, newest - sent.at_ms))
        newest = max(newest, sent.at_ms)
    most = max(*LATE_ROUNDS, *AGAIN_ROUNDS)
    assert 1_000 < max(behind_ms) < (most + 2) * 1_000


def test_a_shape_goes_through_a_command_line() -> None:
    """Children are given the very shape."""
    assert LoadShape.parse(SHAPE.text()) == SHAPE
