"""The records of a scenario: like those that real agents write, and always the same."""

import hashlib
import json
from collections import Counter

import numpy as np
import pytest

from arena.faults.injection import FaultInterval, Symptom
from arena.simulation.world import EPOCH_NS, Second, Simulation, World
from arena.world.cluster import JobPlan
from arena.world.hosts import HostEvent, HostTrouble
from schemas import topics
from schemas.codec import Codec, to_datum
from schemas.records import Heartbeat, PathTrace
from schemas.units import SECOND_NS
from streams.columns.rounds import round_columns
from tests.unit.arena.worlds import at, cluster, loss, world


def run(made: World) -> list[Second]:
    """Return all seconds of a world."""
    return list(Simulation(made).run())


def digest(seconds: list[Second]) -> str:
    """Return a hash of everything that was written."""
    text = json.dumps(
        [
            [(r.at_ns, r.topic, r.key, None if r.record is None else to_datum(r.record))
             for r in s.records] + [r.datum() for r in s.rounds]
            for s in seconds
        ],
        default=str,
    )  # fmt: skip
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_same_seed_gives_the_same_records() -> None:
    """And another seed others."""
    assert digest(run(world(4))) == digest(run(world(4)))
    assert digest(run(world(4))) != digest(run(world(4, seed=2)))


def test_every_record_fits_its_schema() -> None:
    """Whatever can be written is encoded and read back as it was."""
    on = cluster()
    symptoms = (
        (
            FaultInterval(begin_ns=at(1), end_ns=at(3)),
            Symptom("spine:0", "port_state", "down", "up"),
        ),
    )
    jobs = world(8, on=cluster(jobs=(JobPlan(task_id="a", first_host=0, hosts=6, end_s=5.0),)))
    codec = Codec()
    for made in (world(4, on=on, effects=(loss(on, "spine:0"),), symptoms=symptoms), jobs):
        for second in run(made):
            for rec in second.records:
                topic = topics.BY_NAME[rec.topic]
                if rec.record is not None:
                    assert getattr(rec.record, topic.key_field) == rec.key
                    assert codec.decode(topic, codec.encode(topic, rec.record)) == rec.record
            for datum in (r.datum() for r in second.rounds):
                value = codec.encode_datum(topics.PROBE_ROUND, datum)
                assert codec.decode_datum(topics.PROBE_ROUND, value) == datum


def test_a_lost_probe_is_sent_again_twice() -> None:
    """On the same 5-tuple, a timeout later each; answered ones are not."""
    on = cluster()
    for second in run(world(3, on=on, effects=(loss(on, "leaf:s0-r0", begin_s=0),))):
        for datum in (r.datum() for r in second.rounds):
            tries = Counter((r["src"], r["dst"], r["flow"]) for r in datum["results"])
            lost = {
                (r["src"], r["dst"], r["flow"]) for r in datum["results"] if r["rtt_ns"] is None
            }
            assert all(n == (3 if key in lost else 1) for key, n in tries.items())
            offsets = [r["sent_offset_ns"] for r in datum["results"]]
            assert offsets == sorted(offsets)


def test_losses_and_paths_agree() -> None:
    """What is lost crosses the cut link, and what crosses it is lost."""
    on = cluster(hosts=6, rails=2, flows=4)
    link = "link:leaf:s0-r0--spine:1"
    crossing = (on.flows.there == on.number_of[link]).any(axis=1)
    rails = on.rails
    wanted = {
        (f"ep:h{s // rails}/r{s % rails}", f"ep:h{d // rails}/r{d % rails}", f)
        for s, d, f in zip(on.flows.src[crossing].tolist(), on.flows.dst[crossing].tolist(),
                           on.flows.flow[crossing].tolist(), strict=True)
    }  # fmt: skip
    assert wanted
    for second in run(world(3, on=on, effects=(loss(on, link),)))[1:]:
        lost = {
            (r["src"], r["dst"], r["flow"])
            for d in (r.datum() for r in second.rounds) for r in d["results"] if r["rtt_ns"] is None
        }  # fmt: skip
        assert lost == wanted


def test_a_silent_agent_neither_asks_nor_answers_nor_beats() -> None:
    """From the crash on, until it is back."""
    on = cluster()
    crash = HostEvent(host=2, trouble=HostTrouble.CRASH, begin_ns=at(2), end_ns=at(7))
    seconds = run(world(10, on=on, hosts=(crash,)))
    for index in (3, 8):
        second, dead = seconds[index], index == 3
        beats = {r.record.agent_id for r in second.records if isinstance(r.record, Heartbeat)}
        assert ("agent-h2" in beats) is not dead
        assert (2 in {r.host for r in second.rounds}) is not dead
        rounds = [r.datum()["results"] for r in second.rounds]
        toward = [r for results in rounds for r in results if r["dst"].startswith("ep:h2/")]
        assert toward
        assert all((r["rtt_ns"] is None) is dead for r in toward)


def test_a_wrong_clock_shows_in_all_that_a_host_writes() -> None:
    """Rounds and heartbeats; the others' stay right."""
    event = HostEvent(host=1, trouble=HostTrouble.CLOCK, begin_ns=at(1), value_ns=-7 * SECOND_NS)
    second = run(world(4, hosts=(event,)))[3]
    started = {r.host: r.started_at * 1000 for r in second.rounds}
    assert started[1] < second.begin_ns - 5 * SECOND_NS
    assert started[0] >= second.begin_ns


def test_traces_end_where_packets_end() -> None:
    """Complete ones reach the target; after a loss one is made at once."""
    on = cluster(hosts=6, rails=1)
    made = world(30, on=on, effects=(loss(on, "spine:0", begin_s=24),))
    traces = [r.record for s in run(made) for r in s.records if isinstance(r.record, PathTrace)]
    calm = [t for t in traces if t.traced_at * 1000 < at(23)]
    assert {(t.src, t.dst, t.flow) for t in calm} == {
        (f"ep:h{s}/r0", f"ep:h{d}/r0", f)
        for s, d, f in zip(on.flows.src.tolist(), on.flows.dst.tolist(),
                           on.flows.flow.tolist(), strict=True)
    }  # fmt: skip
    assert all(t.complete and t.hops[-1].address is not None for t in calm)
    after = [t for t in traces if t.cause.value == "LOSS"]
    assert after
    assert not any(t.complete for t in after if t.traced_at * 1000 > at(26))


def test_jobs_come_and_go() -> None:
    """Endpoints register askew; only registered ones are probed; at the end they sign off."""
    plan = JobPlan(task_id="a", first_host=0, hosts=6, askew_s=6.0, end_s=9.0)
    seconds = run(world(12, on=cluster(jobs=(plan,))))
    up = [r.key for s in seconds for r in s.records if r.topic == "endpoint.v1" and r.record]
    gone = [r.key for s in seconds for r in s.records if r.topic == "endpoint.v1" and not r.record]
    assert sorted(up) == sorted(gone)
    assert len(up) == 12
    counts = [s.probes for s in seconds]
    assert counts[0] == 0
    assert counts[8] == 6 * 2 * 2 * 2
    assert counts[11] == 0


@pytest.mark.parametrize("tiers", [2, 3])
def test_round_trips_are_of_the_published_size(tiers: int) -> None:
    """Some 16 µs over three switches, log-normal about each path's own median."""
    on = cluster(hosts=8, rails=2, targets=4, tiers=tiers)
    rtt = [
        r["rtt_ns"]
        for s in run(world(40, on=on)) for d in (r.datum() for r in s.rounds) for r in d["results"]
    ]  # fmt: skip
    assert None not in rtt
    assert 13_000 < np.median(rtt) < 22_000
    assert np.quantile(rtt, 0.999) < 10 * np.median(rtt)
    assert EPOCH_NS % SECOND_NS == 0


def test_columns_are_those_of_the_datum() -> None:
    """What the stream worker makes of the decoded round, made without it."""
    on = cluster()
    for second in run(world(6, on=on, effects=(loss(on, "leaf:s0-r0", 0.5, begin_s=2),))):
        for made in second.rounds:
            own, wanted = made.columns(), round_columns(made.datum())
            for name in ("keys", "transport", "started_ns", "reach_ns"):
                assert getattr(own, name) == getattr(wanted, name)
            for name in ("sent_ns", "ok", "values"):
                np.testing.assert_array_equal(getattr(own, name), getattr(wanted, name))
